"""Stand-ins for colours: matplotlib wants some, and the page decides what they look like."""

INK, QUIET, LINE, PAGE = "#010101", "#020202", "#030303", "#040404"
BETTER, WORSE, UNCLEAR, ACCENT = "#050505", "#060606", "#070707", "#080808"
SOURCE_COLOURS = ("#090909", "#0a0a0a", "#0b0b0b")  # of shift
ACTIONS = tuple(f"#1010{position:02x}" for position in range(1, 8))  # the last is for the rest

CSS_OF = {
    "#000000": "currentColor",
    INK: "currentColor",
    QUIET: "var(--quiet)",
    LINE: "var(--line)",
    PAGE: "var(--page)",
    BETTER: "var(--better)",
    WORSE: "var(--worse)",
    UNCLEAR: "var(--unclear)",
    ACCENT: "var(--accent)",
    **{colour: f"var(--action-{place})" for place, colour in enumerate(ACTIONS, start=1)},
    **{colour: f"var(--source-{place})" for place, colour in enumerate(SOURCE_COLOURS, start=1)},
}
