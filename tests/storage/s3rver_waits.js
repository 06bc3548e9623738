// s3rver answers an upload before its file is written, and a read right after it may find the file empty.
// Loaded before s3rver: lets it answer when the files of the upload are closed.
"use strict";

const { AsyncLocalStorage } = require("async_hooks");
const load = require("module").createRequire(process.argv[1]);
const fs = load("fs-extra");
const { prototype } = load("../lib/stores/filesystem");

const uploads = new AsyncLocalStorage();
const create = fs.createWriteStream;

fs.createWriteStream = (...words) => {
  const stream = create(...words);
  uploads.getStore()?.push(new Promise((resolve) => stream.on("close", resolve)));
  return stream;
};

for (const name of ["putObject", "putPart"]) {
  const put = prototype[name];
  prototype[name] = function (...words) {
    const files = [];
    return uploads.run(files, async () => {
      const done = await put.apply(this, words);
      await Promise.all(files);
      return done;
    });
  };
}
