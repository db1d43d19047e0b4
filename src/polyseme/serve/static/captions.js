// @ts-check
/**
 * Words on the map, none over another.
 *
 * In: anchors in the order of their weight, a camera. Out: elements in a layer over the canvas,
 * reused from frame to frame. They are for eyes and pointers; the panel beside has them as a list.
 */

import { h } from "./dom.js";

/**
 * @typedef {{key: string, text: string, x: number, y: number, level: number, className?: string, above?: number, keep?: boolean, choose?: () => void}} Anchor
 */

/**
 * The service's anchors as captions: `shown` is the zoom from which on they stand there (2 ** shown),
 * `level` how small they are written; what has many dots is large.
 * @param {import("./space.js").Space} space @param {(label: string) => void} choose
 * @returns {(Anchor & {shown: number})[]}
 */
export function anchorsOf(space, choose) {
  const highestCount = Math.max(
    1,
    ...space.header.anchors.map((/** @type {any} */ anchor) => anchor.count),
  );
  return [...space.header.anchors]
    .sort((a, b) => a.level - b.level || b.count - a.count)
    .map((anchor, i) => {
      const part = Math.sqrt(anchor.count / highestCount);
      const smallest = anchor.level > 3 ? 3 : anchor.level > 0 ? 1 : 0;
      return {
        key: `${i} ${anchor.label}`,
        text: anchor.label,
        x: anchor.x,
        y: anchor.y,
        shown: anchor.level,
        level: Math.max(smallest, part > 0.6 ? 0 : part > 0.35 ? 1 : part > 0.15 ? 2 : 3),
        choose: () => choose(anchor.label),
      };
    });
}

const HEIGHT = [26, 22, 20, 18];
const measure = /** @type {CanvasRenderingContext2D} */ (
  document.createElement("canvas").getContext("2d")
);

export class Captions {
  /** @param {HTMLElement} layer @param {number} [maxCaptions] */
  constructor(layer, maxCaptions = 48) {
    this.layer = layer;
    this.most = maxCaptions;
    /** @type {Map<string, any>} */
    this.shown = new Map();
    /** @type {Map<string, number>} */
    this.widths = new Map();
  }

  /** @param {Anchor} anchor */
  width(anchor) {
    const key = `${anchor.level} ${anchor.text}`;
    let width = this.widths.get(key);
    if (width === undefined) {
      const size = [19, 16, 14.5, 13][Math.min(3, anchor.level)];
      measure.font = `600 ${size}px Georgia, serif`;
      width = measure.measureText(anchor.text).width + 14;
      this.widths.set(key, width);
    }
    return width;
  }

  /**
   * @param {import("./points.js").Points} points
   * @param {Anchor[]} anchors the first ones have the right of way
   */
  place(points, anchors) {
    /** @type {[number, number, number, number][]} */
    const boxes = [];
    const visibleKeys = new Set();
    for (const anchor of anchors) {
      if (boxes.length >= this.most) break;
      let [x, y] = points.toScreen(anchor.x, anchor.y);
      const w = this.width(anchor) / 2;
      if (anchor.above) y -= anchor.above;
      if (x < 8 || y < 8 || x > points.width - 8 || y > points.height - 8) continue;
      if (anchor.keep) x = Math.max(w + 4, Math.min(points.width - w - 4, x));
      const t = HEIGHT[Math.min(3, anchor.level)] / 2;
      const box = /** @type {[number, number, number, number]} */ ([x - w, y - t, x + w, y + t]);
      if (
        boxes.some(
          (other) =>
            box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1],
        )
      )
        continue;
      boxes.push(box);
      visibleKeys.add(anchor.key);
      const element = this.element(anchor);
      element.style.setProperty(
        "transform",
        `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px) translate(-50%, -50%)`,
      );
    }
    for (const [key, element] of this.shown) {
      if (visibleKeys.has(key)) continue;
      element.remove();
      this.shown.delete(key);
    }
  }

  /** @param {Anchor} anchor */
  element(anchor) {
    let element = this.shown.get(anchor.key);
    if (!element) {
      element = h("button", {
          tabindex: "-1",
          class: `caption caption-${Math.min(3, anchor.level)} ${anchor.className || ""}`,
          onclick: anchor.choose,
        },
        anchor.text,
      );
      this.shown.set(anchor.key, element);
      this.layer.append(element);
    }
    return element;
  }
}
