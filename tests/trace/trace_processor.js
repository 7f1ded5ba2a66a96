// Runs the trace processor that a Perfetto UI build carries, without a browser, until stdin ends: requests on stdin,
// replies on stdout, both as TraceProcessorRpcStreams, each with its length before it as four bytes, the lowest first.
// usage: node trace_processor.js <folder with engine_bundle.js>
//
// The bundle is a web worker's: it is given the few things of a worker that it uses, one of which is a port to talk
// through.
"use strict";
const fs = require("node:fs");
const path = require("node:path");

const folder = process.argv[2];
const bundle = path.join(folder, "engine_bundle.js");
const replies = [];

class LocalRequest {
  open(_method, url) {
    this.file = path.join(folder, path.basename(String(url)));
  }
  send() {
    const data = fs.readFileSync(this.file);
    this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
  }
}

const worker = { location: { href: `file://${bundle}` } };
const quiet = { log() {}, info() {}, warn() {}, error: (...words) => process.stderr.write(`${words.join(" ")}\n`) };
const port = { postMessage: (reply) => replies.push(Buffer.from(reply)) };
const given = {
  self: worker,
  WorkerGlobalScope: function () {},
  XMLHttpRequest: LocalRequest,
  console: quiet,
  // Hidden, so that the bundle does not take this for Node.
  process: undefined,
  require: undefined,
  window: undefined,
  document: undefined,
};
new Function(...Object.keys(given), fs.readFileSync(bundle, "utf8"))(...Object.values(given));
worker.onmessage({ data: port });

let received = Buffer.alloc(0);
function answer() {
  while (received.length >= 4 && received.length >= 4 + received.readUInt32LE(0)) {
    const end = 4 + received.readUInt32LE(0);
    replies.length = 0;
    port.onmessage({ data: new Uint8Array(received.subarray(4, end)) });
    received = received.subarray(end);
    const reply = Buffer.concat(replies);
    const length = Buffer.alloc(4);
    length.writeUInt32LE(reply.length);
    process.stdout.write(Buffer.concat([length, reply]));
  }
}
setTimeout(() => {
  const chunks = [];
  process.stdin.on("data", (chunk) => {
    chunks.push(chunk);
    // Joined only when whole, as traces are large.
    const have = chunks.reduce((sum, part) => sum + part.length, received.length);
    const needed = received.length >= 4 ? 4 + received.readUInt32LE(0) : 4;
    if (have >= needed) {
      received = Buffer.concat([received, ...chunks.splice(0)]);
      answer();
    }
  });
}, 0);
