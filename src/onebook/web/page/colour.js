// A colour of the page as a canvas needs it: resolved for the theme that is shown now.

export function colour(element, name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
