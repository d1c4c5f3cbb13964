// A classic script, not a module: applied before the first paint, so that the page does not flash.
(() => {
  const choices = {
    theme: ["auto", "light", "dark"], // background
    sides: ["blue", "green"], // of bids: with orange or red asks
  };
  const words = { auto: "Auto", light: "Light", dark: "Dark" };
  const chosen = {};
  for (const [name, [usual, ...others]] of Object.entries(choices)) {
    chosen[name] = usual;
    try {
      const kept = localStorage.getItem(`onebook.${name}`);
      if (others.includes(kept)) chosen[name] = kept;
    } catch { /* storage is off */ }
  }

  const apply = () => {
    for (const [name, [usual]] of Object.entries(choices)) {
      if (chosen[name] === usual) delete document.documentElement.dataset[name];
      else document.documentElement.dataset[name] = chosen[name];
      const control = document.getElementById(name);
      if (control?.tagName === "SELECT") control.value = chosen[name];
      else if (control?.tagName === "BUTTON") {
        control.textContent = words[chosen[name]];
        control.ariaLabel = `${words[chosen[name]]}: change the colours`;
      }
    }
  };
  const choose = (name, value) => {
    chosen[name] = value;
    try { localStorage.setItem(`onebook.${name}`, value); } catch { /* storage is off */ }
    apply();
    dispatchEvent(new Event("themechange"));
  };
  apply();

  // With a key in the address or the tab, the first page connects immediately: its form would only flash.
  let key = /[#&]key=[^&]/.test(location.hash);
  try { key ||= sessionStorage.getItem("onebook.key") !== null; } catch { /* storage is off */ }
  if (key) document.documentElement.dataset.entering = "yes";

  addEventListener("DOMContentLoaded", () => {
    apply();
    for (const [name, values] of Object.entries(choices)) {
      const control = document.getElementById(name);
      // The documentation has one button that cycles through the choices.
      if (control?.tagName === "SELECT") control.addEventListener("change", () => choose(name, control.value));
      else if (control?.tagName === "BUTTON") control.addEventListener("click", () => choose(name, values[(values.indexOf(chosen[name]) + 1) % values.length]));
    }
  });
})();
