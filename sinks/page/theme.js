// Sets the chosen theme, or the system's, before the first paint; otherwise the other theme would flash.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  try {
    root.dataset.chosen = localStorage.getItem("queuewatch-theme") ?? "";
  } catch {
    root.dataset.chosen = ""; // the browser may forbid storage
  }
  const apply = () => {
    root.dataset.theme = root.dataset.chosen || (dark.matches ? "dark" : "light");
  };
  dark.addEventListener("change", apply);
  apply();
})();
