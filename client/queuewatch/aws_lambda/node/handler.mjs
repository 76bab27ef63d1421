// What the function's handler setting names: the function's own handler, wrapped.

import { loadOriginal } from "./original.mjs";
import { wrap } from "./wrapper.mjs";

export const handler = wrap(await loadOriginal());
