// @ts-check
/**
 * Fingers, mouse, wheel and keys move a map.
 *
 * In: events on a canvas. Out: pans and zooms of its `Points`; a tap, a hover, a lasso as calls.
 */

/** @typedef {import("./points.js").Points} Points */
/** @typedef {{x: number, y: number}} Position in CSS pixels on the canvas */
/**
 * What is told of.
 * @typedef {object} Handlers
 * @property {(x: number, y: number) => void} [tap]
 * @property {(x: number, y: number) => void} [hover] NaN when the pointer leaves
 * @property {(polygon: [number, number][], isDone: boolean) => void} [lasso]
 * @property {() => boolean} [isLasso] whether a plain drag draws a lasso
 * @property {() => void} [enter] Enter on the canvas
 * @property {() => void} [escape]
 */

const TAP_TRAVEL = 6; // CSS pixels that a finger may move in a tap
const STEP = 48; // CSS pixels of an arrow key
const LARGE_STEP = 160; // with Shift
const KEY_ZOOM = 1.35; // factor of the keys + and -
const WHEEL_LINE = 18; // CSS pixels of a line that a wheel turns
const WHEEL_ZOOM = 0.0018; // logarithm of the factor, for a CSS pixel
const PINCH_ZOOM = 0.01;

/**
 * Let gestures on a map's canvas move it, and tell of the others.
 * @param {Points} points
 * @param {Handlers} handlers
 */
export function listen(points, handlers) {
  const { canvas } = points;
  const gestures = new Gestures(points, handlers);
  canvas.addEventListener("pointerdown", (event) => gestures.press(event));
  canvas.addEventListener("pointermove", (event) => gestures.move(event));
  canvas.addEventListener("pointerup", (event) => gestures.release(event));
  canvas.addEventListener("pointercancel", (event) => gestures.release(event));
  canvas.addEventListener("pointerleave", () => handlers.hover?.(NaN, NaN));
  canvas.addEventListener("wheel", (event) => gestures.turnWheel(event), { passive: false });
  canvas.addEventListener("dblclick", (event) => gestures.doubleClick(event));
  canvas.addEventListener("keydown", (event) => gestures.handleKey(event));
}

class Gestures {
  /**
   * @param {Points} points
   * @param {Handlers} handlers
   */
  constructor(points, handlers) {
    this.points = points;
    this.handlers = handlers;
    /** Pointers that are down. @type {Map<number, Position>} */
    this.down = new Map();
    /** The lasso that is drawn, in CSS pixels. @type {[number, number][] | null} */
    this.polygon = null;
    this.travelled = 0; // CSS pixels since the first pointer went down
  }

  /** Return where on the canvas an event is. @param {MouseEvent} event @returns {Position} */
  positionOf(event) {
    const box = this.points.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  /**
   * Begin a gesture; with Shift or the lasso on, the first pointer draws.
   * @param {PointerEvent} event
   */
  press(event) {
    if (event.button !== 0) return;
    const position = this.positionOf(event);
    const isFirst = this.down.size === 0;
    const { lasso, isLasso } = this.handlers;
    const drawsLasso = isFirst && lasso && (event.shiftKey || isLasso?.());
    this.points.canvas.setPointerCapture(event.pointerId);
    if (isFirst) this.travelled = 0;
    this.polygon = drawsLasso ? [[position.x, position.y]] : null;
    this.down.set(event.pointerId, position);
  }

  /** Draw the lasso, pan or pinch, by the pointers that are down. @param {PointerEvent} event */
  move(event) {
    const position = this.positionOf(event);
    const former = this.down.get(event.pointerId);
    if (!former) {
      if (event.pointerType !== "touch") this.handlers.hover?.(position.x, position.y);
      return;
    }
    const dx = position.x - former.x;
    const dy = position.y - former.y;
    this.travelled += Math.abs(dx) + Math.abs(dy);
    if (this.polygon) {
      this.polygon.push([position.x, position.y]);
      this.handlers.lasso?.(this.polygon, false);
    } else if (this.down.size === 1) {
      this.points.pan(dx, dy);
    } else {
      this.pinch(event.pointerId, former, position);
    }
    this.down.set(event.pointerId, position);
  }

  /**
   * Move and zoom by two fingers.
   * @param {number} pointerId of the finger that moved
   * @param {Position} former
   * @param {Position} position
   */
  pinch(pointerId, former, position) {
    const other = [...this.down].find(([id]) => id !== pointerId)?.[1];
    if (!other) return;
    const distanceBefore = Math.hypot(former.x - other.x, former.y - other.y) || 1;
    const distance = Math.hypot(position.x - other.x, position.y - other.y) || 1;
    const x = (position.x + other.x) / 2;
    const y = (position.y + other.y) / 2;
    this.points.pan((position.x - former.x) / 2, (position.y - former.y) / 2);
    this.points.zoom(distance / distanceBefore, x, y);
  }

  /**
   * End a gesture: a lasso, or a tap where the pointer has hardly moved.
   * @param {PointerEvent} event
   */
  release(event) {
    if (!this.down.delete(event.pointerId)) return;
    const isLast = this.down.size === 0;
    const isTap = event.type === "pointerup" && isLast && this.travelled < TAP_TRAVEL;
    const { x, y } = this.positionOf(event);
    if (this.polygon) {
      this.handlers.lasso?.(this.polygon, true);
      this.polygon = null;
    } else if (isTap) {
      this.handlers.tap?.(x, y);
    }
  }

  /** @param {WheelEvent} event */
  turnWheel(event) {
    const { x, y } = this.positionOf(event);
    const isInLines = event.deltaMode === WheelEvent.DOM_DELTA_LINE;
    const pixels = event.deltaY * (isInLines ? WHEEL_LINE : 1);
    const rate = event.ctrlKey ? PINCH_ZOOM : WHEEL_ZOOM; // a pinch comes as Ctrl and the wheel
    event.preventDefault();
    this.points.zoom(Math.exp(-pixels * rate), x, y);
  }

  /** @param {MouseEvent} event */
  doubleClick(event) {
    const { x, y } = this.positionOf(event);
    this.points.zoom(2, x, y);
  }

  /** @param {KeyboardEvent} event */
  handleKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const run = this.actions(event.shiftKey ? LARGE_STEP : STEP)[event.key];
    if (!run) return;
    run();
    event.preventDefault();
    event.stopPropagation();
  }

  /**
   * What the keys do.
   * @param {number} step CSS pixels of an arrow key
   * @returns {Record<string, () => void>}
   */
  actions(step) {
    const { points, handlers } = this;
    return {
      ArrowLeft: () => points.pan(step, 0),
      ArrowRight: () => points.pan(-step, 0),
      ArrowUp: () => points.pan(0, step),
      ArrowDown: () => points.pan(0, -step),
      "+": () => points.zoom(KEY_ZOOM),
      "=": () => points.zoom(KEY_ZOOM),
      "-": () => points.zoom(1 / KEY_ZOOM),
      0: () => points.space && points.fit(points.space.header.bounds),
      Enter: () => handlers.enter?.(),
      Escape: () => handlers.escape?.(),
    };
  }
}
