// Runs the trace processor that a Perfetto UI build carries, without a browser: requests on stdin, replies on stdout,
// both as one TraceProcessorRpcStream. usage: node trace_processor.js <folder with engine_bundle.js>
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
setTimeout(() => {
  port.onmessage({ data: new Uint8Array(fs.readFileSync(0)) });
  fs.writeFileSync(1, Buffer.concat(replies));
}, 0);
