// Whether an element is visible: hidden or scrolled-out elements need not be drawn.

const MARGIN = "25%"; // of the window, so that charts are drawn before they scroll into view
export const NO_MARGIN = "0px"; // for content that may be drawn after it scrolled into view

export class Sight {
  visible = false;

  /** `appeared` is called whenever the element becomes visible. */
  constructor(element, appeared, rootMargin = MARGIN) {
    const seen = ([...entries]) => {
      const before = this.visible;
      this.visible = entries.at(-1).isIntersecting;
      if (this.visible && !before) appeared();
    };
    new IntersectionObserver(seen, { rootMargin }).observe(element);
  }
}
