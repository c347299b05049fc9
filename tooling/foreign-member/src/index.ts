export type { DecodedRecords, ForeignEvent, LeasePosition } from "./foreign-event.js";
export { ForeignMember, type ForeignMemberOptions } from "./foreign-member.js";
