#!/usr/bin/env node
// Runs the program for this system, which came as one of this package's optional dependencies.
// Nothing is downloaded, neither here nor by a script at installation.
"use strict";
const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const name = `@semelhq/semel-${process.platform}-${process.arch}`;
let program;
try {
	program = require.resolve(`${name}/bin/semel${process.platform === "win32" ? ".exe" : ""}`);
} catch {
	console.error(`semel: the package ${name} isn't installed. Either there is no program for this system, or npm was told to omit optional dependencies.`);
	process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends Control-C to both; whoever signals this process means the program.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) {
	process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
	console.error(`semel: ${error.message}`);
	process.exit(1);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
