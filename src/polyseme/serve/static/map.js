// @ts-check
/** The Map view. */
import { empty } from "./parts.js";

/** @param {HTMLElement} root @param {import("./app.js").Context} context */
export function mount(root, context) {
  root.append(empty("Map", context.model.id));
}
