// Package mcp is the door for tool calls by the Model Context Protocol, versions 2026-07-28,
// 2025-11-25 and 2025-06-18: a tool runs once, however often its call is sent.
//
// [Gateway] stands as a reverse proxy before a server anywhere, over Streamable HTTP. Only
// tools/call is guarded; everything else passes byte for byte.
//
// Clients repeat a call under another id of JSON-RPC, and nearly none sends a key. So a call is
// known by the key that it has, or else by the arguments that its [Tool] declares, or else as the
// echo of an equal call of the same caller that lost its client or its answer, for a short time. A
// duplicate gets the recorded result under the id that it asked under, and one that comes while
// the first call runs waits for it.
package mcp
