// Applied before the first paint, so that the page does not flash: classic script, no module.
(() => {
  const choices = ["auto", "light", "dark"];
  const words = { auto: "Auto", light: "Light", dark: "Dark" };
  let chosen = "auto";
  try { chosen = localStorage.getItem("onebook.theme") ?? "auto"; } catch { /* storage is off */ }

  const apply = () => {
    if (chosen === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    const button = document.getElementById("theme");
    if (!button) return;
    button.textContent = words[chosen];
    button.ariaLabel = `${words[chosen]}: change the colours`;
  };
  if (!choices.includes(chosen)) chosen = "auto";
  apply();

  addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme")?.addEventListener("click", () => {
      chosen = choices[(choices.indexOf(chosen) + 1) % choices.length];
      try { localStorage.setItem("onebook.theme", chosen); } catch { /* storage is off */ }
      apply();
      dispatchEvent(new Event("themechange"));
    });
  });
})();
