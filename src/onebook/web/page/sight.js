// Whether an element can be seen: what is scrolled away or hidden need not be drawn.

const MARGIN = "25%"; // of the window, so that scrolling meets a chart that is drawn
export const NO_MARGIN = "0px"; // for what may be written a little later

export class Sight {
  visible = false;

  /** `appeared` is called whenever the element comes into sight. */
  constructor(element, appeared, rootMargin = MARGIN) {
    const seen = ([...entries]) => {
      const before = this.visible;
      this.visible = entries.at(-1).isIntersecting;
      if (this.visible && !before) appeared();
    };
    new IntersectionObserver(seen, { rootMargin }).observe(element);
  }
}
