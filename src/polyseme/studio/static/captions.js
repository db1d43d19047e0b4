// @ts-check
/**
 * Words on the map, none over another.
 *
 * In: anchors in the order of their weight, a camera. Out: elements in a layer over the canvas,
 * reused from frame to frame. They are for eyes and pointers; the panel beside has them as a list.
 *
 * Terms: an anchor is a word and the place of the map where it stands. Its `level` is how small it
 * is written, from 0 to 3; the service's own levels say from which zoom on a word is shown.
 */

import { h } from "./dom.js";

/**
 * A word and where it stands.
 * @typedef {object} Anchor
 * @property {string} key that no other anchor has
 * @property {string} text
 * @property {number} x in the map's coordinates
 * @property {number} y
 * @property {number} level how small it is written, from 0 to 3
 * @property {string} [className]
 * @property {number} [above] CSS pixels above its place
 * @property {boolean} [keep] whether it is moved into the picture where it stands over its edge
 * @property {() => void} [choose] what a click does
 */
/**
 * The zoom from which on a word is shown, as a power of two.
 * @typedef {Anchor & {shown: number}} ZoomAnchor
 */
/** Left, top, right, bottom in CSS pixels. @typedef {[number, number, number, number]} Box */

const FONT_SIZES = [19, 16, 14.5, 13]; // by level, in CSS pixels
const HEIGHTS = [26, 22, 20, 18]; // of a word with the space around it
const PADDING = 14; // left and right of a word together
const MARGIN = 8; // at the edges of the picture
const EDGE_GAP = 4; // left where a word is moved into the picture
const SMALLEST = 3; // the last level
const SHARES = [0.6, 0.35, 0.15]; // of the most dots, above which a word has level 0, 1 or 2

/** Measures how wide a word is. */
const measure = /** @type {CanvasRenderingContext2D} */ (
  document.createElement("canvas").getContext("2d")
);

/**
 * Return the service's anchors as captions; a label with many dots is written large.
 * @param {import("./space.js").Space} space
 * @param {(label: string) => void} choose
 * @returns {ZoomAnchor[]}
 */
export function anchorsOf(space, choose) {
  const anchors = [...space.header.anchors];
  const highestCount = Math.max(1, ...anchors.map(({ count }) => count));
  anchors.sort((a, b) => a.level - b.level || b.count - a.count);
  return anchors.map(({ label, x, y, level, count }, i) => ({
    key: `${i} ${label}`,
    text: label,
    x,
    y,
    shown: level,
    level: Math.max(levelOfZoom(level), levelOfShare(Math.sqrt(count / highestCount))),
    choose: () => choose(label),
  }));
}

/** Return the level of a word: what is shown later is written smaller. @param {number} zoom */
function levelOfZoom(zoom) {
  if (zoom > 3) return SMALLEST;
  return zoom > 0 ? 1 : 0;
}

/** Return the level of a word with a share of the most dots. @param {number} share from 0 to 1 */
function levelOfShare(share) {
  const level = SHARES.findIndex((limit) => share > limit);
  return level < 0 ? SMALLEST : level;
}

/** The words that are shown now, as elements of a layer. */
export class Captions {
  /**
   * @param {HTMLElement} layer
   * @param {number} [maxCaptions]
   */
  constructor(layer, maxCaptions = 48) {
    this.layer = layer;
    this.maxCaptions = maxCaptions;
    /** Elements by the keys of their anchors. @type {Map<string, HTMLElement>} */
    this.shown = new Map();
    /** Widths in CSS pixels, by level and text. @type {Map<string, number>} */
    this.widths = new Map();
  }

  /**
   * Show as many words as there is room for.
   * @param {import("./points.js").Points} points
   * @param {Anchor[]} anchors the first ones have the right of way
   */
  place(points, anchors) {
    /** @type {Box[]} */
    const boxes = [];
    const visibleKeys = new Set();
    for (const anchor of anchors) {
      if (boxes.length >= this.maxCaptions) break;
      const box = this.boxOf(anchor, points);
      if (!box || boxes.some((other) => overlap(box, other))) continue;
      boxes.push(box);
      visibleKeys.add(anchor.key);
      moveTo(this.elementOf(anchor), box);
    }
    for (const [key, element] of this.shown) {
      if (visibleKeys.has(key)) continue;
      element.remove();
      this.shown.delete(key);
    }
  }

  /**
   * Return the box of a word; nothing where it is outside the picture.
   * @param {Anchor} anchor
   * @param {import("./points.js").Points} points
   * @returns {Box | null}
   */
  boxOf(anchor, points) {
    const [centre, bottom] = points.toScreen(anchor.x, anchor.y);
    const y = bottom - (anchor.above ?? 0);
    const isInside = isBetween(centre, points.width) && isBetween(y, points.height);
    if (!isInside) return null;
    const halfWidth = this.widthOf(anchor) / 2;
    const halfHeight = HEIGHTS[Math.min(SMALLEST, anchor.level)] / 2;
    const leftmost = halfWidth + EDGE_GAP;
    const rightmost = points.width - halfWidth - EDGE_GAP;
    const x = anchor.keep ? Math.max(leftmost, Math.min(rightmost, centre)) : centre;
    return [x - halfWidth, y - halfHeight, x + halfWidth, y + halfHeight];
  }

  /** Return how wide a word is with the space around it, in CSS pixels. @param {Anchor} anchor */
  widthOf({ level, text }) {
    const key = `${level} ${text}`;
    const known = this.widths.get(key);
    if (known !== undefined) return known;
    measure.font = `600 ${FONT_SIZES[Math.min(SMALLEST, level)]}px Georgia, serif`;
    const width = measure.measureText(text).width + PADDING;
    this.widths.set(key, width);
    return width;
  }

  /**
   * Return the element of a word, the former one where it is shown already.
   * @param {Anchor} anchor
   */
  elementOf({ key, text, level, className = "", choose }) {
    const former = this.shown.get(key);
    if (former) return former;
    const style = `caption-${Math.min(SMALLEST, level)} ${className}`;
    const element = h("button.caption", { tabindex: "-1", class: style, onclick: choose }, text);
    this.shown.set(key, element);
    this.layer.append(element);
    return element;
  }
}

/**
 * Whether a place is inside the picture, in one direction.
 * @param {number} position in CSS pixels
 * @param {number} size of the picture
 */
const isBetween = (position, size) => position >= MARGIN && position <= size - MARGIN;

/**
 * @param {Box} a
 * @param {Box} b
 */
function overlap(a, b) {
  return a[0] < b[2] && a[2] > b[0] && a[1] < b[3] && a[3] > b[1];
}

/**
 * Move the middle of an element to the middle of a box.
 * @param {HTMLElement} element
 * @param {Box} box
 */
function moveTo(element, [left, top, right, bottom]) {
  const x = ((left + right) / 2).toFixed(1);
  const y = ((top + bottom) / 2).toFixed(1);
  element.style.setProperty("transform", `translate(${x}px, ${y}px) translate(-50%, -50%)`);
}
