package semel

import (
	"maps"
	"slices"
)

// Internal is the part of an engine for packages that stand between it and those who run
// calls: doors that translate a protocol, dispatchers of messages, the service and its
// commands. A program that only runs calls needs none of it.
//
// It may be copied and used concurrently, as its engine may.
type Internal struct{ engine *Engine }

// Internal returns what doors, dispatchers and services need beyond running calls.
func (e *Engine) Internal() Internal { return Internal{e} }

// Store is the store that the engine was made on.
func (in Internal) Store() Store { return in.engine.store }

// Listens reports whether anybody wants to know of answers: [Events].Answered is set. A
// door need not gather what it would tell otherwise.
func (in Internal) Listens() bool { return in.engine.events.Answered != nil }

// Troubled passes an event to [Events].Troubled. It reports false if that isn't set.
func (in Internal) Troubled(e Event) bool {
	tell := in.engine.events.Troubled
	if tell != nil {
		tell(e)
	}
	return tell != nil
}

// Operation returns a registered operation with its defaults filled in.
func (in Internal) Operation(name string) (Operation, bool) {
	op, ok := (*in.engine.ops.Load())[name]
	if !ok {
		return Operation{}, false
	}
	return op.Operation, true
}

// Operations returns the registered operations by name, with their defaults
// filled in.
func (in Internal) Operations() []Operation {
	ops := *in.engine.ops.Load()
	list := make([]Operation, 0, len(ops))
	for _, name := range slices.Sorted(maps.Keys(ops)) {
		list = append(list, ops[name].Operation)
	}
	return list
}

// Redeclare replaces what an earlier call of Redeclare has registered, all or nothing.
// declare registers the operations, itself or through others. If it fails, the engine's
// operations are again what they were. Otherwise commit removes those that the earlier
// call registered and this one didn't: the engine then treats their calls and records as
// one that never had them would. Attempts that run go on. What was registered outside of
// Redeclare stays. Call it once at a time, and register nothing else meanwhile.
func (in Internal) Redeclare(declare func() error) (commit func(), err error) {
	e := in.engine
	before := e.ops.Load()
	e.register.Lock()
	e.declarations++
	this := e.declarations
	e.declaring = this
	e.register.Unlock()
	err = declare()
	e.register.Lock()
	defer e.register.Unlock()
	e.declaring = 0
	if err != nil {
		e.ops.Store(before)
		return nil, err
	}
	return func() {
		e.register.Lock()
		defer e.register.Unlock()
		next := maps.Clone(*e.ops.Load())
		maps.DeleteFunc(next, func(_ string, op *operation) bool { return op.declared != 0 && op.declared != this })
		e.ops.Store(&next)
	}, nil
}
