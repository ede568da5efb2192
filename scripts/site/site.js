// What keyboards and screen readers need: a name for the search dialog, and wide tables that keys can scroll.
document$.subscribe(() => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  const reach = () => document.querySelectorAll(".md-typeset__scrollwrap").forEach((one) => (one.tabIndex = 0));
  new MutationObserver(reach).observe(document.querySelector(".md-content"), { childList: true, subtree: true });
  reach();
});
