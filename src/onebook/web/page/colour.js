// Resolves the variables of base.css for a canvas, in the current theme.

export function colour(element, name) {
  return inksOf(element, [name])[name];
}

/**
 * Colours by the names of their variables, and `label`, the type of labels: {px, family}; whole pixels, as uPlot reads
 * them. They are resolved together, because the browser computes styles again after each change of the page.
 */
export function inksOf(element, names) {
  const probe = document.createElement("i");
  probe.style.fontSize = "var(--text-xs)";
  const probes = names.map((name) => {
    const each = document.createElement("i");
    each.style.color = `var(${name})`;
    return each;
  });
  probe.append(...probes);
  element.append(probe);
  const { fontSize, fontFamily } = getComputedStyle(probe);
  const inks = Object.fromEntries(names.map((name, at) => [name, getComputedStyle(probes[at]).color]));
  probe.remove();
  return { ...inks, label: { px: Math.round(parseFloat(fontSize)), family: fontFamily } };
}
