// The target of the function's handler setting: the function's own handler, wrapped.

import { loadOriginal } from "./original.mjs";
import { wrap } from "./wrapper.mjs";

export const handler = wrap(await loadOriginal());
