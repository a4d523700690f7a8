"""Placeholder colours for matplotlib; the page replaces them by its own."""

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

# The same colours for a standalone figure, as on a light page.
PAPER = {
    INK: "#1d2327",
    QUIET: "#56616b",
    LINE: "#d8dde1",
    PAGE: "#fdfdfc",
    BETTER: "#1b6ca8",
    WORSE: "#b0461a",
    UNCLEAR: "#66717b",
    ACCENT: "#1c5d99",
    **dict(zip(SOURCE_COLOURS, ("#0f766e", "#946200", "#6d3fa0"), strict=True)),
    **dict(
        zip(
            ACTIONS,
            ("#a9cdea", "#f5c48d", "#a7d8ba", "#dcb8da", "#efdc86", "#cdc3b5", "#d5d9dd"),
            strict=True,
        )
    ),
}
