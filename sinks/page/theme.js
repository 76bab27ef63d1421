// Runs before the first paint, so that a chosen theme does not flash in the other one.
(() => {
  try {
    const chosen = localStorage.getItem("queuewatch-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden; the system's preference then decides.
  }
})();
