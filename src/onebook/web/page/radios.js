// A row of radio buttons that looks like tabs.

let made = 0;

/** Fill a box with a button for each [value, text]; `changed(value)` is called with the user's choice. Returns the buttons. */
export function radios(box, choices, chosen, changed) {
  const name = `radios-${(made += 1)}`;
  const inputs = choices.map(([value, text]) => {
    const label = document.createElement("label");
    const input = Object.assign(document.createElement("input"), { type: "radio", name, value, checked: value === chosen });
    label.append(input, text);
    box.append(label);
    return input;
  });
  box.addEventListener("change", ({ target }) => changed(target.value));
  return inputs;
}
