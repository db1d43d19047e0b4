// @ts-check
/**
 * Where a picture, a sound or a row of numbers comes in: drop, choose, paste.
 *
 * In: files and text. Out: `take({file})`, `take({features})` or `take({})` when it is removed.
 */

import { clear, h } from "./dom.js";
import { icon, iconButton, plural } from "./parts.js";

/** Numbers of a text, or null if something in it is no number. @param {string} text */
function numbersOf(text) {
  const parts = text
    .replace(/[[\]()]/g, " ")
    .split(/[\s,;]+/)
    .filter(Boolean);
  const numbers = parts.map(Number);
  return parts.length && numbers.every(Number.isFinite) ? numbers : null;
}

/**
 * @param {object} options
 * @param {any} options.model
 * @param {HTMLElement} options.area what files can be dropped on
 * @param {(given: {file?: File, features?: number[]}) => void} options.take
 * @param {(text: string) => void} options.complain
 */
export function intake({ model, area, take, complain }) {
  const media = model.media;
  const mediumName = media === "audio" ? "a sound" : "a picture";
  const element = h("div.intake");
  const file = h("input.sr", {
    type: "file",
    tabindex: "-1",
    aria_hidden: "true",
    accept: media === "audio" ? "audio/*" : "image/*",
    onchange: () => file.files[0] && accept(file.files[0]),
  });
  const text = h("textarea", {
    aria_label: "Row of numbers",
    rows: "3",
    placeholder: `${model.n_features} numbers, with spaces or commas between`,
    spellcheck: "false",
    oninput: () => read(),
  });
  const note = h("p.muted.small", { role: "status" });
  const numbers = h("details.numbers", h("summary", "A row of numbers instead"), text, note);
  let preview = "";

  const accept = (/** @type {File} */ newFile) => {
    const kind = newFile.type.split("/")[0];
    if (!media) return complain("This model takes numbers, not files.");
    if (kind !== media && !(kind === "" && media))
      return complain(
        `This model takes ${mediumName}; this is ${newFile.type || "something else"}.`,
      );
    text.value = "";
    note.textContent = "";
    take({ file: newFile });
    show({ file: newFile });
  };

  const read = () => {
    const row = numbersOf(text.value);
    const n = row ? row.length : 0;
    note.textContent = !text.value.trim()
      ? ""
      : !row
        ? "Something in there is no number."
        : n === model.n_features
          ? `${plural(n, "number")}, as the model takes.`
          : `${plural(n, "number")} of ${model.n_features}.`;
    if (row && n === model.n_features) take({ features: row });
    else if (!text.value.trim()) take({});
  };

  const remove = () => {
    file.value = "";
    show({});
    take({});
  };

  /** @param {{file?: File, features?: number[], item?: string}} content */
  const show = (content) => {
    if (preview) URL.revokeObjectURL(preview);
    preview = content.file ? URL.createObjectURL(content.file) : "";
    if (content.features) text.value = content.features.join(" ");
    const shown = content.file
      ? h("figure.given",
          media === "audio"
            ? h("audio", { controls: true, src: preview })
            : h("img", { src: preview, alt: `The picture ${content.file.name}` }),
          h("figcaption",
            h("span", content.file.name),
            iconButton("close", `Take ${content.file.name} away`, { onclick: remove }),
          ),
        )
      : content.item
        ? h("figure.given",
            h("figcaption",
              h("span", `Item ${content.item}`),
              iconButton("close", "Take the item away", { onclick: remove }),
            ),
          )
        : media
          ? h("button.drop", { onclick: () => file.click() },
              icon(media === "audio" ? "sound" : "image"),
              h("span",
                h("strong", `Choose ${mediumName}`),
                h("span.muted", "or drop or paste one here"),
              ),
            )
          : null;
    clear(element, shown, content.file || content.item ? null : numbers, file);
    numbers.open = Boolean(content.features) || (!media && !content.item);
  };

  const over = (/** @type {DragEvent} */ event) => {
    if (![...(event.dataTransfer?.types || [])].includes("Files")) return;
    event.preventDefault();
    area.classList.add("dropping");
  };
  const drop = (/** @type {DragEvent} */ event) => {
    area.classList.remove("dropping");
    const newFile = event.dataTransfer?.files[0];
    if (!newFile) return;
    event.preventDefault();
    accept(newFile);
  };
  const paste = (/** @type {any} */ event) => {
    const newFile = event.clipboardData?.files[0];
    if (newFile) {
      event.preventDefault();
      accept(newFile);
      return;
    }
    if (event.defaultPrevented || event.target.closest("input, textarea")) return;
    const row = numbersOf(event.clipboardData?.getData("text") || "");
    if (!row || row.length < 2) return;
    text.value = row.join(" ");
    numbers.open = true;
    read();
  };
  area.addEventListener("dragover", over);
  area.addEventListener("dragleave", () => area.classList.remove("dropping"));
  area.addEventListener("drop", drop);
  window.addEventListener("paste", paste);
  return {
    element,
    show,
    /** The medium of an item that stands there already. @param {string} url @param {string} kind */
    picture(url, kind) {
      const figure = element.querySelector(".given");
      if (!figure) return;
      figure.prepend(
        kind === "audio"
          ? h("audio", { controls: true, src: url })
          : h("img", { src: url, alt: "The item" }),
      );
    },
    dispose() {
      window.removeEventListener("paste", paste);
      if (preview) URL.revokeObjectURL(preview);
    },
  };
}
