// Resolves the variables of base.css for a canvas, in the current theme.

export function colour(element, name) {
  return resolved(element, { color: `var(${name})` }).color;
}

/** The type of labels: {px, family}; whole pixels, as uPlot reads them. */
export function labels(element) {
  const { fontSize, fontFamily } = resolved(element, { fontSize: "var(--text-xs)" });
  return { px: Math.round(parseFloat(fontSize)), family: fontFamily };
}

function resolved(element, style) {
  const probe = document.createElement("i");
  Object.assign(probe.style, style);
  element.append(probe);
  const { color, fontSize, fontFamily } = getComputedStyle(probe);
  probe.remove();
  return { color, fontSize, fontFamily };
}
