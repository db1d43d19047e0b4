// @ts-check
/**
 * A box for several tags: each is a chip that can be taken away again.
 *
 * In: typing, with completion; pasted lists. Out: `change(tags)` after each change.
 */

import { clear, h } from "./dom.js";
import { icon } from "./parts.js";
import { labelBox } from "./labelbox.js";

/**
 * @param {object} options
 * @param {import("./api.js").Api} options.api
 * @param {string[]} options.tags
 * @param {(tags: string[]) => void} options.change
 */
export function chipBox({ api, tags: first, change }) {
  let tags = [...first];
  /** @type {Set<string>} */
  let unknown = new Set();
  const list = h("ul.chipbox-list", { aria_label: "Tags given" });
  const box = labelBox({
    api,
    name: "Add a tag",
    placeholder: "Type a tag",
    allowNew: true,
    search: true,
    choose: (label) => put([label]),
    backspace: () => tags.length && set(tags.slice(0, -1)),
  });
  const element = h("div.chipbox",
    { onclick: (/** @type {Event} */ event) => event.target === element && box.input.focus() },
    list,
    box.element,
  );

  box.input.addEventListener("paste", (event) => {
    const text = event.clipboardData?.getData("text") || "";
    if (!/[,;\n]/.test(text)) return;
    event.preventDefault();
    put(text.split(/[,;\n]/));
  });
  box.input.addEventListener("keydown", (event) => {
    if (event.key !== "," || !box.input.value.trim()) return;
    event.preventDefault();
    put([box.input.value]);
    box.input.value = "";
    box.close();
  });

  const put = (/** @type {string[]} */ more) => {
    const fresh = more
      .map((tag) => tag.trim().replace(/\s+/g, " "))
      .filter((tag) => tag && !tags.some((own) => own.toLowerCase() === tag.toLowerCase()));
    if (fresh.length) set([...tags, ...new Set(fresh)]);
  };
  const set = (/** @type {string[]} */ to, quiet = false) => {
    tags = [...to];
    draw();
    if (!quiet) change(tags);
  };
  const draw = () => {
    clear(list,
      tags.map((tag) =>
        h("li", {
            class: unknown.has(tag) ? "chip chip-unknown" : "chip",
            title: unknown.has(tag) ? "In no known tag set" : null,
          },
          tag,
          h("button.chip-x", {
              aria_label: `Take ${tag} away`,
              onclick: () => (set(tags.filter((own) => own !== tag)), box.input.focus()),
            },
            icon("close"),
          ),
        ),
      ),
    );
    list.hidden = !tags.length;
  };
  draw();
  return {
    element,
    put,
    set,
    input: box.input,
    /** Mark tags that no known tag set holds. @param {string[]} list */
    mark(list) {
      unknown = new Set(list);
      draw();
    },
  };
}
