import { KrabkaError } from "@krabka/core";
import { LocalError } from "../../errors.js";

/** The end of whatever saw another log than the one that is there now. Its offsets, pairs and sessions never count again. */
export const otherHistory = (message: string, cause = new LocalError("OTHER_HISTORY", message)): KrabkaError =>
  new KrabkaError("CLOSED", message, { cause });
