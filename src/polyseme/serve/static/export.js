// @ts-check
/**
 * The menu that gives what was answered to other programs.
 *
 * In: the service's exports. Out: a file to keep, or XMP files beside the items' own.
 */

import { h } from "./dom.js";
import { confirmed, icon, plural } from "./parts.js";

/** @typedef {import("./app.js").Context} Context */

/** @param {Context} context */
export function exportMenu(context) {
  const { api, attempt, toast } = context;
  const forms = [
    ["jsonl", "Answers (JSONL)", "every answer, one a line"],
    ["documents", "Documents (JSONL)", "items with their tags, to fit a model again"],
    ["label-studio", "Label Studio (JSON)", "tasks with the tags as annotations"],
  ];
  const download = async (/** @type {string} */ form) => {
    const answer = await api.binary(api.model("export"), { params: { form } });
    const named = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") || "");
    const url = URL.createObjectURL(await answer.blob());
    h("a", { href: url, download: named?.[1] || form }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
    toast("Exported.");
  };
  const sidecars = async () => {
    const write = (/** @type {boolean} */ really) =>
      api.post(api.model("export/sidecars"), { dry_run: !really });
    const plan = await write(false);
    const summary = plan.files
      ? `${plural(plan.tags, "tag")} would be written to XMP files beside ${plural(plan.files, "item")}.`
      : "There is nothing to write: no item has an accepted tag.";
    if (
      !(await confirmed("Write sidecars?", h("p", summary), plan.files ? "Write the files" : null))
    )
      return;
    const result = await write(true);
    toast(`${plural(result.tags, "tag")} written beside ${plural(result.files, "item")}.`);
  };
  const choose = (/** @type {() => Promise<void>} */ run) => {
    menu.open = false;
    attempt(run);
  };
  const menu = h("details.menu",
    h("summary", icon("download"), "Export"),
    h("div.menu-items",
      forms.map(([form, name, description]) =>
        h("button", { onclick: () => choose(() => download(form)) },
          h("strong", name),
          h("span.muted.small", description),
        ),
      ),
      h("button", { onclick: () => choose(sidecars) },
        h("strong", "Sidecars (XMP)"),
        h("span.muted.small", "tags beside the files; asks first"),
      ),
    ),
  );
  menu.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  menu.addEventListener("focusout", (/** @type {FocusEvent} */ event) => {
    if (event.relatedTarget && !menu.contains(/** @type {Node} */ (event.relatedTarget)))
      menu.open = false;
  });
  return menu;
}
