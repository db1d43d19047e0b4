// @ts-check
/**
 * Short messages at the foot of the page, which go by themselves.
 *
 * In: a text, and perhaps a way to undo what it tells of. Out: an element in the page's region.
 */

import { $, h } from "./dom.js";
import { iconButton } from "./parts.js";

/** @typedef {{undo?: () => void, error?: boolean, seconds?: number}} ToastOptions */

const MAX_TOASTS = 3;
const SECONDS = 5;
const SECONDS_TO_ACT = 9; // for what can be undone or has to be read

/**
 * Show a message for some seconds.
 * @param {string} text
 * @param {ToastOptions} [options]
 */
export function toast(text, { undo, error = false, seconds } = {}) {
  const region = $(".toasts");
  const leave = () => box.remove();
  const undoAndLeave = () => {
    leave();
    undo?.();
  };
  const box = h("div.toast", { class: error ? "toast-error" : null },
    h("span", text),
    undo && h("button", { onclick: undoAndLeave }, "Undo"),
    iconButton("close", "Dismiss", { onclick: leave }),
  );
  if (undo) {
    // One Undo, for the latest change: that of an earlier one would take the later ones back, too.
    removeAll(".toast-undo");
    box.classList.add("toast-undo");
  }
  while (region.children.length >= MAX_TOASTS) region.firstChild.remove();
  region.append(box);
  const standard = undo || error ? SECONDS_TO_ACT : SECONDS;
  setTimeout(leave, 1000 * (seconds ?? standard));
}

/**
 * Run what a person asked for; what goes wrong is said, until something goes well.
 * @template T
 * @param {() => Promise<T>} run
 * @returns {Promise<T | undefined>}
 */
export async function attempt(run) {
  try {
    const result = await run();
    removeAll(".toast-error");
    return result;
  } catch (error) {
    toast(/** @type {Error} */ (error).message, { error: true });
  }
}

/** @param {string} selector of toasts */
function removeAll(selector) {
  for (const box of $(".toasts").querySelectorAll(selector)) box.remove();
}
