// The settings drawer: beside the books on a wide screen, over them on a narrow one. Whether it is open and
// which of its sections are open is stored in this browser.

const SLOT = "onebook.drawer";
const WIDE = "(min-width: 60rem)"; // as in book.css
const FORGOTTEN = ["usage"]; // its report has the key in its URL, so the user must open it each time

export class Drawer {
  #drawer;
  #button;
  #sections;

  /** `at` finds an element of the page. */
  constructor(at) {
    this.#drawer = at("drawer");
    this.#button = at("settings");
    this.#sections = [...this.#drawer.querySelectorAll("details[id]")];
    const { open: sections } = this.#kept();
    for (const each of this.#sections) if (sections && !FORGOTTEN.includes(each.id)) each.open = sections.includes(each.id);
    this.#button.addEventListener("click", () => (this.#drawer.open ? this.#close() : this.#open()));
    at("drawer-close").addEventListener("click", () => this.#close());
    this.#drawer.addEventListener("close", () => this.#said());
    this.#drawer.addEventListener("keydown", ({ key, defaultPrevented }) => key === "Escape" && !defaultPrevented && this.#close());
    for (const each of this.#sections) each.addEventListener("toggle", () => this.#keep());
    matchMedia(WIDE).addEventListener("change", () => this.#drawer.open && this.#close());
  }

  /** Restore its last state without taking the focus; never over the books. */
  restore() {
    if (this.#kept().shown && matchMedia(WIDE).matches) this.#drawer.open = true;
    this.#said();
  }

  /** Close it at the end of the session, without storing that. */
  hide() {
    if (this.#drawer.open) this.#drawer.close();
    this.#said();
  }

  contains(element) {
    return this.#drawer.contains(element);
  }

  #open() {
    if (matchMedia(WIDE).matches) this.#drawer.show();
    else this.#drawer.showModal();
    this.#said();
    this.#keep();
  }

  #close() {
    this.#drawer.close();
    this.#keep();
    this.#button.focus();
  }

  #said() {
    this.#button.setAttribute("aria-expanded", String(this.#drawer.open));
  }

  #kept() {
    try { return JSON.parse(localStorage.getItem(SLOT)) ?? {}; } catch { return {}; }
  }

  #keep() {
    const open = this.#sections.filter((each) => each.open).map((each) => each.id);
    try { localStorage.setItem(SLOT, JSON.stringify({ shown: this.#drawer.open, open })); } catch { /* storage is off */ }
  }
}
