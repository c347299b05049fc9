import { describeTransport } from "@krabka/testing/conformance";
import { embeddedSubject } from "./embedded-subject.js";

describeTransport(embeddedSubject("in-process"));
describeTransport(embeddedSubject("socket"));
