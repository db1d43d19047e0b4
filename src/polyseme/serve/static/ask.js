// @ts-check
/** The Ask view. */
import { empty } from "./parts.js";

/** @param {HTMLElement} root @param {import("./app.js").Context} context */
export function mount(root, context) {
  root.append(empty("Ask", context.model.id));
}
