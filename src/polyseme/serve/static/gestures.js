// @ts-check
/**
 * Fingers, mouse, wheel and keys move a map.
 *
 * In: events on a canvas. Out: pans and zooms of its `Points`; a tap, a hover, a lasso as calls.
 */

/**
 * @param {import("./points.js").Points} points
 * @param {object} on
 * @param {(x: number, y: number) => void} [on.tap]
 * @param {(x: number, y: number) => void} [on.hover] also called with NaN when the pointer leaves
 * @param {(polygon: [number, number][], done: boolean) => void} [on.lasso]
 * @param {() => boolean} [on.lassoing] whether a plain drag draws a lasso
 * @param {() => void} [on.enter] Enter on the canvas
 * @param {() => void} [on.escape]
 */
export function listen(points, on) {
  const { canvas } = points;
  /** @type {Map<number, {x: number, y: number}>} */
  const down = new Map();
  /** @type {[number, number][] | null} */
  let lasso = null;
  let travelled = 0;

  const place = (/** @type {PointerEvent | WheelEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const at = place(event);
    canvas.setPointerCapture(event.pointerId);
    if (down.size === 0) {
      travelled = 0;
      lasso = on.lasso && (event.shiftKey || on.lassoing?.()) ? [[at.x, at.y]] : null;
    } else lasso = null;
    down.set(event.pointerId, at);
  });

  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    const was = down.get(event.pointerId);
    if (!was) {
      if (event.pointerType !== "touch") on.hover?.(at.x, at.y);
      return;
    }
    travelled += Math.abs(at.x - was.x) + Math.abs(at.y - was.y);
    if (lasso) {
      lasso.push([at.x, at.y]);
      on.lasso?.(lasso, false);
    } else if (down.size === 1) points.pan(at.x - was.x, at.y - was.y);
    else pinch(event.pointerId, was, at);
    down.set(event.pointerId, at);
  });

  const pinch = (
    /** @type {number} */ id,
    /** @type {{x: number, y: number}} */ was,
    /** @type {{x: number, y: number}} */ at,
  ) => {
    const other = [...down].find(([one]) => one !== id)?.[1];
    if (!other) return;
    const before = Math.hypot(was.x - other.x, was.y - other.y) || 1;
    const after = Math.hypot(at.x - other.x, at.y - other.y) || 1;
    points.pan((at.x - was.x) / 2, (at.y - was.y) / 2);
    points.zoom(after / before, (at.x + other.x) / 2, (at.y + other.y) / 2);
  };

  const up = (/** @type {PointerEvent} */ event) => {
    if (!down.delete(event.pointerId)) return;
    const at = place(event);
    if (lasso) {
      on.lasso?.(lasso, true);
      lasso = null;
    } else if (event.type === "pointerup" && down.size === 0 && travelled < 6) on.tap?.(at.x, at.y);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => on.hover?.(NaN, NaN));

  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const at = place(event);
      const lines = event.deltaMode === 1 ? 18 : 1;
      points.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0018)), at.x, at.y);
    },
    { passive: false },
  );
  canvas.addEventListener("dblclick", (event) => {
    const box = canvas.getBoundingClientRect();
    points.zoom(2, event.clientX - box.left, event.clientY - box.top);
  });

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = event.shiftKey ? 160 : 48;
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowLeft: () => points.pan(step, 0),
      ArrowRight: () => points.pan(-step, 0),
      ArrowUp: () => points.pan(0, step),
      ArrowDown: () => points.pan(0, -step),
      "+": () => points.zoom(1.35),
      "=": () => points.zoom(1.35),
      "-": () => points.zoom(1 / 1.35),
      0: () => points.space && points.fit(points.space.header.bounds),
      Enter: () => on.enter?.(),
      Escape: () => on.escape?.(),
    };
    const run = keys[event.key];
    if (!run) return;
    run();
    event.preventDefault();
    event.stopPropagation();
  });
}
