package dashboard

import (
	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/figures"
)

// Observer keeps the newest decisions of an engine for the live page, and counts the answers
// that duplicates of a call got. Add its Events to the engine's, and close it before the
// store. It may be used concurrently.
type Observer = api.Observer

// NewObserver makes the observer of an engine on a store.
func NewObserver(st semel.Store) *Observer { return api.NewObserver(st) }

// Figures count deliveries over all nodes of a store. Add their Events to the engine's and
// call Run. They may be used concurrently.
type Figures = figures.Figures

// NewFigures makes the figures of one node.
func NewFigures(st semel.Store) *Figures { return figures.New(st, nil) }
