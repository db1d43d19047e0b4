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
export function chipBox({ api, tags: initialTags, change }) {
  let tags = [...initialTags];
  /** @type {Set<string>} */
  let unknown = new Set();
  const list = h("ul.chipbox-list", { aria_label: "Tags given" });
  const box = labelBox({
    api,
    name: "Add a tag",
    placeholder: "Type a tag",
    allowNew: true,
    search: true,
    choose: (label) => addTags([label]),
    backspace: () => tags.length && setTags(tags.slice(0, -1)),
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
    addTags(text.split(/[,;\n]/));
  });
  box.input.addEventListener("keydown", (event) => {
    if (event.key !== "," || !box.input.value.trim()) return;
    event.preventDefault();
    addTags([box.input.value]);
    box.input.value = "";
    box.close();
  });

  const addTags = (/** @type {string[]} */ typedTags) => {
    const newTags = typedTags
      .map((tag) => tag.trim().replace(/\s+/g, " "))
      .filter(
        (tag) => tag && !tags.some((existing) => existing.toLowerCase() === tag.toLowerCase()),
      );
    if (newTags.length) setTags([...tags, ...new Set(newTags)]);
  };
  const setTags = (/** @type {string[]} */ newTags, quiet = false) => {
    tags = [...newTags];
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
              onclick: () => (setTags(tags.filter((other) => other !== tag)), box.input.focus()),
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
    put: addTags,
    set: setTags,
    input: box.input,
    /** Mark tags that no known tag set holds. @param {string[]} list */
    mark(list) {
      unknown = new Set(list);
      draw();
    },
  };
}
