// What the theme adds to a page, for those who listen to it or use the keyboard: the buttons of each
// block of code get a name of their own, and a table that scrolls sideways can be scrolled by keys.
const reach = () => {
  document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((nav, index) => {
    nav.setAttribute("aria-label", `Code ${index + 1}`);
  });
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((wrap) => {
    wrap.setAttribute("tabindex", "0");
  });
};
reach();
new MutationObserver(reach).observe(document.body, { childList: true, subtree: true });
