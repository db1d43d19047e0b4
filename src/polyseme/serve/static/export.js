// @ts-check
/**
 * The menu that gives what was answered to other programs.
 *
 * In: the service's exports. Out: a file to keep, or XMP files beside the items' own.
 */

import { h } from "./dom.js";
import { dialog, icon, plural } from "./parts.js";

/** @typedef {import("./app.js").Context} Context */

/** @param {Context} context */
export function exportMenu(context) {
  const { api, model, toast } = context;
  const forms = [
    ["jsonl", "Answers (JSONL)", "every answer, one a line", "answers.jsonl"],
    ["documents", "Documents (JSONL)", "items with their tags, to fit a model again", "documents.jsonl"],
    ["label-studio", "Label Studio (JSON)", "tasks with the tags as annotations", "label-studio.json"],
  ];
  const download = async (/** @type {string} */ form, /** @type {string} */ file) => {
    menu.open = false;
    try {
      const answer = await api.binary(api.model("export"), { params: { form } });
      const named = /filename="?([^";]+)"?/.exec(answer.headers.get("Content-Disposition") || "");
      const url = URL.createObjectURL(await answer.blob());
      h("a", { href: url, download: named ? named[1] : `${model.id}-${file}` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
      toast("Exported.");
    } catch (error) {
      toast(/** @type {any} */ (error).message, { error: true });
    }
  };
  const sidecars = async () => {
    menu.open = false;
    /** @type {any} */
    let would;
    try {
      would = await api.post(api.model("export/sidecars"), { dry_run: true });
    } catch (error) {
      toast(/** @type {any} */ (error).message, { error: true });
      return;
    }
    const sure = await dialog("Write sidecars?", (close) =>
      h("div", { class: "stack" },
        h("p", null, would.files ? `${plural(would.tags, "tag")} would be written to XMP files beside ${plural(would.files, "item")}.` : "There is nothing to write: no item has an accepted tag."),
        h("div", { class: "row end" },
          h("button", { type: "button", onclick: () => close() }, "Cancel"),
          would.files > 0 && h("button", { type: "button", class: "primary", onclick: () => close(true) }, "Write the files"))));
    if (!sure) return;
    try {
      const done = await api.post(api.model("export/sidecars"), { dry_run: false });
      toast(`${plural(done.tags, "tag")} written beside ${plural(done.files, "item")}.`);
    } catch (error) {
      toast(/** @type {any} */ (error).message, { error: true });
    }
  };
  const menu = h("details", { class: "menu" },
    h("summary", null, icon("download"), "Export"),
    h("div", { class: "menu-items" },
      forms.map(([form, name, says, file]) => h("button", { type: "button", onclick: () => download(form, file) }, h("strong", null, name), h("span", { class: "muted small" }, says))),
      h("button", { type: "button", onclick: sidecars }, h("strong", null, "Sidecars (XMP)"), h("span", { class: "muted small" }, "tags beside the files; asks first"))));
  menu.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  menu.addEventListener("focusout", (/** @type {FocusEvent} */ event) => {
    if (event.relatedTarget && !menu.contains(/** @type {Node} */ (event.relatedTarget))) menu.open = false;
  });
  return menu;
}
