// @ts-check
/**
 * Fingers, mouse, wheel and keys move a map.
 *
 * In: events on a canvas. Out: pans and zooms of its `Points`; a tap, a hover, a lasso as calls.
 */

/**
 * @param {import("./points.js").Points} points
 * @param {object} handlers
 * @param {(x: number, y: number) => void} [handlers.tap]
 * @param {(x: number, y: number) => void} [handlers.hover] also called with NaN when the pointer leaves
 * @param {(polygon: [number, number][], done: boolean) => void} [handlers.lasso]
 * @param {() => boolean} [handlers.lassoing] whether a plain drag draws a lasso
 * @param {() => void} [handlers.enter] Enter on the canvas
 * @param {() => void} [handlers.escape]
 */
export function listen(points, handlers) {
  const { canvas } = points;
  /** @type {Map<number, {x: number, y: number}>} */
  const down = new Map();
  /** @type {[number, number][] | null} */
  let lasso = null;
  let travelled = 0;

  const positionOf = (/** @type {PointerEvent | WheelEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const position = positionOf(event);
    canvas.setPointerCapture(event.pointerId);
    if (down.size === 0) {
      travelled = 0;
      lasso =
        handlers.lasso && (event.shiftKey || handlers.lassoing?.())
          ? [[position.x, position.y]]
          : null;
    } else lasso = null;
    down.set(event.pointerId, position);
  });

  canvas.addEventListener("pointermove", (event) => {
    const position = positionOf(event);
    const former = down.get(event.pointerId);
    if (!former) {
      if (event.pointerType !== "touch") handlers.hover?.(position.x, position.y);
      return;
    }
    travelled += Math.abs(position.x - former.x) + Math.abs(position.y - former.y);
    if (lasso) {
      lasso.push([position.x, position.y]);
      handlers.lasso?.(lasso, false);
    } else if (down.size === 1) points.pan(position.x - former.x, position.y - former.y);
    else pinch(event.pointerId, former, position);
    down.set(event.pointerId, position);
  });

  const pinch = (
    /** @type {number} */ id,
    /** @type {{x: number, y: number}} */ former,
    /** @type {{x: number, y: number}} */ position,
  ) => {
    const other = [...down].find(([pointerId]) => pointerId !== id)?.[1];
    if (!other) return;
    const distanceBefore = Math.hypot(former.x - other.x, former.y - other.y) || 1;
    const distanceAfter = Math.hypot(position.x - other.x, position.y - other.y) || 1;
    points.pan((position.x - former.x) / 2, (position.y - former.y) / 2);
    points.zoom(
      distanceAfter / distanceBefore,
      (position.x + other.x) / 2,
      (position.y + other.y) / 2,
    );
  };

  const up = (/** @type {PointerEvent} */ event) => {
    if (!down.delete(event.pointerId)) return;
    const position = positionOf(event);
    if (lasso) {
      handlers.lasso?.(lasso, true);
      lasso = null;
    } else if (event.type === "pointerup" && down.size === 0 && travelled < 6)
      handlers.tap?.(position.x, position.y);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => handlers.hover?.(NaN, NaN));

  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const position = positionOf(event);
      const lines = event.deltaMode === 1 ? 18 : 1;
      points.zoom(
        Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0018)),
        position.x,
        position.y,
      );
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
      Enter: () => handlers.enter?.(),
      Escape: () => handlers.escape?.(),
    };
    const run = keys[event.key];
    if (!run) return;
    run();
    event.preventDefault();
    event.stopPropagation();
  });
}
