// Writes text and attributes to the document only if they differ.

/**
 * Set the text of an element; returns true if it changed. The text node is reused: a new one would make the browser
 * recompute styles, a changed one costs only the layout of its line.
 */
export function write(element, text) {
  const wanted = String(text);
  const node = element.firstChild;
  if (!node) element.append(wanted);
  else if (node.data === wanted) return false;
  else node.data = wanted;
  return true;
}

/** Set an attribute that selectors may name, only if it changes. */
export function mark(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

export function hide(element, hidden) {
  if (element.hidden !== hidden) element.hidden = hidden;
}
