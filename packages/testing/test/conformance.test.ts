import { describeTransport } from "../src/conformance/index.js";
import { fakeSubject } from "./fake-subject.js";

const inTransactions = "This fake transport was told to write in transactions only";
const noRemint = "As with clients that speak InitProducerId below version 3";
const noDescribe = "As with clients without DescribeTransactions";
const committedOnly = "As with clients that read committed records only";

describeTransport(fakeSubject({ name: "The fake with lease records as appends", options: {}, unsupported: {} }));

describeTransport(
  fakeSubject({
    name: "The fake with lease records in transactions",
    options: { leaseRecords: "transaction" },
    unsupported: { fencedAppend: inTransactions },
  }),
);

describeTransport(
  fakeSubject({
    name: "The fake with the least that a transport may support",
    options: {
      leaseRecords: "transaction",
      without: { conditionalRemint: noRemint, describe: noDescribe, uncommittedReads: committedOnly },
    },
    unsupported: {
      fencedAppend: inTransactions,
      conditionalRemint: noRemint,
      describe: noDescribe,
      uncommittedReads: committedOnly,
    },
  }),
);
