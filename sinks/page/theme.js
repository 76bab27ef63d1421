// Sets the chosen theme, or the system's, before the first paint, so that the other theme does not flash.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  try {
    root.dataset.chosen = localStorage.getItem("queuewatch-theme") ?? "";
  } catch {
    root.dataset.chosen = ""; // Storage may be forbidden.
  }
  const apply = () => {
    root.dataset.theme = root.dataset.chosen || (dark.matches ? "dark" : "light");
  };
  dark.addEventListener("change", apply);
  apply();
})();
