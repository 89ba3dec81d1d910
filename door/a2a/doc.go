// Package a2a is the door for messages to agents by the Agent2Agent protocol, versions 1.0 and
// 0.3: a message starts or continues one task, however often it is sent.
//
// It has two forms. [Wrap] guards an agent in this program that is built with the official SDK:
//
//	handler, err := a2a.Wrap(engine, a2asrv.NewHandler(agent), a2a.Options{Operation: semel.Operation{Name: "agent.messages"}})
//
// [Gateway] is a reverse proxy in front of an agent anywhere, over JSON-RPC or REST
// (HTTP+JSON), and changes nothing that passes through it.
//
// A message's identity is its sender, its messageId and the task that it names; the header
// Idempotency-Key can stand in for the messageId. The same message gets the same task
// (MAP-A2A.1): its result if it is finished, or else its state, which the door gets from the
// agent. A message that names a task continues that task and starts no other one (MAP-A2A.2).
// The same messageId with other content is a conflict. Everything that reads, cancels or
// follows a task passes.
//
// See docs/a2a.md for the table of states, and for what isn't promised.
package a2a
