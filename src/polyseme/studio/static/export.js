// @ts-check
/**
 * The menu that gives what was answered to other programs.
 *
 * In: the service's exports. Out: a file to keep, or tags in Markdown and in XMP files beside others.
 */

import { h } from "./dom.js";
import { confirmed, icon, plural } from "./parts.js";

/** @typedef {import("./app.js").Context} Context */

const DOWNLOAD_TIME = 60_000; // milliseconds for which a download may take its bytes

/** What can be downloaded: form, name, meaning. */
const FORMS = [
  ["jsonl", "Answers (JSONL)", "every answer, one a line"],
  ["documents", "Tags of items (JSONL)", "items with their tags, to fit a model again"],
  ["label-studio", "Label Studio (JSON)", "tasks with the tags as annotations"],
];

const SIDECARS = ["Sidecars (XMP)", "tags beside the files; asks first"];
const TAGS_IN_TEXTS = ["Tags in the files", "Markdown gets them itself, others a sidecar; asks first"];

/** Whether the items are texts. @param {Context} context */
const hasTexts = ({ model }) => model.collection?.media === "text";

/** The menu of exports. @param {Context} context */
export function exportMenu(context) {
  const choose = (/** @type {() => Promise<void>} */ run) => {
    menu.open = false;
    context.attempt(run);
  };
  const downloads = FORMS.map(([form, name, meaning]) =>
    menuItem(name, meaning, () => choose(() => download(context, form))),
  );
  const [name, meaning] = hasTexts(context) ? TAGS_IN_TEXTS : SIDECARS;
  const sidecars = menuItem(name, meaning, () => choose(() => writeSidecars(context)));
  const menu = h("details.menu",
    h("summary", icon("download"), "Export"),
    h("div.menu-items", downloads, sidecars),
  );
  closeWhenLeft(menu);
  return menu;
}

/**
 * @param {string} name
 * @param {string} meaning
 * @param {() => void} onclick
 */
function menuItem(name, meaning, onclick) {
  return h("button", { onclick }, h("strong", name), h("span.muted.small", meaning));
}

/** Close a menu by Escape, and when the focus goes elsewhere. @param {any} menu */
function closeWhenLeft(menu) {
  menu.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  menu.addEventListener("focusout", (/** @type {FocusEvent} */ event) => {
    const { relatedTarget } = event;
    if (relatedTarget && !menu.contains(relatedTarget)) menu.open = false;
  });
}

/**
 * Hand an export to the browser as a file.
 * @param {Context} context
 * @param {string} form one of FORMS
 */
async function download({ api, toast }, form) {
  const answer = await api.binary(api.model("export"), { params: { form } });
  const disposition = answer.headers.get("Content-Disposition") || "";
  const name = /filename="([^"]+)"/.exec(disposition)?.[1] || form;
  const url = URL.createObjectURL(await answer.blob());
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), DOWNLOAD_TIME);
  toast("Exported.");
}

/** Write accepted tags beside the files, once a person has agreed. @param {Context} context */
async function writeSidecars(context) {
  const { api, toast } = context;
  const areTexts = hasTexts(context);
  const title = areTexts ? "Write tags?" : "Write sidecars?";
  const post = (/** @type {boolean} */ dry_run) =>
    api.post(api.model("export/sidecars"), { dry_run });
  const plan = await post(true);
  const action = plan.files ? "Write the files" : null;
  if (!(await confirmed(title, h("p", planSentence(plan, areTexts)), action))) return;
  const { tags, files } = await post(false);
  const to = areTexts ? "for" : "beside";
  toast(`${plural(tags, "tag")} written ${to} ${plural(files, "item")}.`);
}

/**
 * @param {{tags: number, files: number}} plan
 * @param {boolean} areTexts
 */
function planSentence({ tags, files }, areTexts) {
  if (!files) return "There is nothing to write: no item has an accepted tag that is new to it.";
  if (areTexts) {
    const sum = `${plural(tags, "tag")} would be written for ${plural(files, "item")}`;
    return `${sum}: into the front matter of Markdown, and to XMP files beside other files.`;
  }
  return `${plural(tags, "tag")} would be written to XMP files beside ${plural(files, "item")}.`;
}
