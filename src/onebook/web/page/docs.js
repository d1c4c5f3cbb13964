// The documentation: search over an index built by the server, and a button that copies code.
const SHOWN_MAX = 12;
const AROUND = 90; // characters around a hit
const COPIED_MS = 1_500;

const element = (name, text, attributes = {}) =>
  Object.assign(document.createElement(name), { textContent: text, ...attributes });

// Search

const WORDS_MAX = 3; // matches per text that count towards its rank
const wordsOf = (text) => text.split(/[^\p{L}\p{N}_]+/u);

/** Sections that contain every word, best first: words in headings, whole words and repeated words count more. */
export const find = (index, query) => {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const scored = [];
  for (const hit of words.length ? index : []) {
    const [heading, page, text] = [hit.heading, hit.page + hit.url.split("#")[0], hit.text].map((each) => each.toLowerCase());
    let score = 0;
    for (const word of words) {
      const found = (heading.includes(word) && 8) + (page.includes(word) && 4) + (text.includes(word) && 1);
      if (!found) { score = 0; break; }
      const times = text.includes(word) ? wordsOf(text).filter((each) => each === word).length : 0;
      score += found + (wordsOf(heading).includes(word) && 4) + Math.min(WORDS_MAX, times);
    }
    if (score) scored.push([score, hit]);
  }
  return scored.sort(([a], [b]) => b - a).map(([, hit]) => hit);
};

/** The part of a text around the first word of a query. */
export const excerpt = (text, query) => {
  const at = text.toLowerCase().indexOf(query.toLowerCase().split(/\s+/).find(Boolean) ?? "");
  const from = Math.max(0, at - AROUND);
  return (from ? "…" : "") + text.slice(from, from + 2 * AROUND) + (from + 2 * AROUND < text.length ? "…" : "");
};

const startSearch = (form) => {
  const input = form.querySelector("input");
  const found = form.querySelector(".found");
  const count = form.querySelector(".count");
  const list = form.querySelector("ul");
  let index = null; // a promise, set by the first search
  let asked = "";

  const show = async () => {
    const query = asked = input.value.trim();
    found.hidden = !query;
    if (!query) return;
    let hits;
    try {
      index ??= fetch("/docs/search.json").then((answer) => {
        if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
        return answer.json();
      });
      hits = find(await index, query);
    } catch {
      index = null;
      count.textContent = "The index could not be loaded; try again.";
      list.replaceChildren();
      return;
    }
    if (query !== asked) return; // the user has typed more since
    const more = hits.length > SHOWN_MAX ? `, the best ${SHOWN_MAX} shown` : "";
    count.textContent = hits.length ? `${hits.length} found${more}` : `No page contains all of “${query}”.`;
    list.replaceChildren(...hits.slice(0, SHOWN_MAX).map((hit) => {
      const link = element("a", "", { href: hit.url });
      const where = hit.heading === hit.page ? hit.page : `${hit.page}: ${hit.heading}`;
      link.append(element("b", where), element("span", excerpt(hit.text, query)));
      const item = document.createElement("li");
      item.append(link);
      return item;
    }));
  };

  const move = (step) => {
    const places = [input, ...list.querySelectorAll("a")];
    const at = places.indexOf(document.activeElement);
    places[(at + step + places.length) % places.length].focus();
  };
  const close = () => { found.hidden = true; };
  input.addEventListener("input", show);
  input.addEventListener("focus", show);
  list.addEventListener("click", close);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    list.querySelector("a")?.click();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "Escape") { input.focus(); close(); }
    else return;
    event.preventDefault();
  });
  addEventListener("click", ({ target }) => { if (!form.contains(target)) close(); });
  form.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget && !form.contains(relatedTarget)) close();
  });
};

// Copy

const copy = async (block) => {
  if (navigator.clipboard) return navigator.clipboard.writeText(block.innerText);
  getSelection().selectAllChildren(block); // plain HTTP has no Clipboard API
  const copied = document.execCommand("copy");
  getSelection().removeAllRanges();
  if (!copied) throw new Error("the browser does not allow it");
};

const addCopy = (pre) => {
  const around = element("div", "", { className: "block" });
  const button = element("button", "Copy", { type: "button", className: "copy quiet" });
  pre.replaceWith(around);
  around.append(pre, button);
  button.addEventListener("click", async () => {
    try {
      await copy(pre.querySelector("code"));
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = "Copy"; }, COPIED_MS);
  });
};

// Wide tables

/** Make only scrollable elements keyboard-focusable. */
const reachIfCut = ({ target }) => {
  if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
  else target.removeAttribute("tabindex");
};

const form = document.querySelector("form.search");
if (form) {
  startSearch(form);
  document.querySelectorAll("main pre").forEach(addCopy);
  const sizes = new ResizeObserver((seen) => seen.forEach(reachIfCut));
  document.querySelectorAll("main .wide").forEach((each) => sizes.observe(each));
  // On a narrow screen the contents are above the text, and closed so that the text is visible.
  const contents = document.querySelector(".contents");
  if (matchMedia("(max-width: 56rem)").matches) contents.removeAttribute("open");
  contents.dataset.read = "yes";
}
