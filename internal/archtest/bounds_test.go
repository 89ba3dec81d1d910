package archtest

import (
	"bufio"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ceilingList has what is over a bound today, and how far. Its numbers only fall: a line is
// lowered or removed, and one that is added needs a reason in the review.
const ceilingList = "ceilings.txt"

// room is a part of the tree that somebody has to read as a whole.
type room struct {
	name  string
	bound int // in lines of Go, without tests
	in    func(file string) bool
}

func below(dirs ...string) func(string) bool {
	return func(file string) bool {
		return slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(file, d+"/") })
	}
}

// in is below, without the directories further down.
func in(dirs ...string) func(string) bool {
	return func(file string) bool {
		dir := "."
		if i := strings.LastIndexByte(file, '/'); i >= 0 {
			dir = file[:i]
		}
		return slices.Contains(dirs, dir)
	}
}

var rooms = []room{
	{"core", 20_000, in(".", "store", "store/codec", "store/memstore", "door", "door/inbox", "door/judge", "safehttp", "door/semelhttp", "internal/canon", "internal/gather", "internal/offsetclock")},
	{"store/pebblestore", 3_000, below("store/pebblestore")},
	{"store/pgstore", 3_000, below("store/pgstore")},
	{"store/redisstore", 3_000, below("store/redisstore")},
	{"door/a2a", 2_500, below("door/a2a")},
	{"door/activitypub", 2_500, below("door/activitypub")},
	{"door/forrst", 2_500, below("door/forrst")},
	{"door/ids", 2_500, below("door/ids")},
	{"door/mcp", 2_500, below("door/mcp")},
	{"door/webhook", 2_500, below("door/webhook")},
	{"internal/check", 2_015, below("internal/check")},
	{"service", 15_000, below("service", "internal/service")},
	{"commands", 9_000, func(file string) bool {
		return below("cmd/semel")(file) && !below("cmd/semel/internal/demo")(file)
	}},
	{"documentation", 1_200, below("docs", "internal/docs", "internal/codes")},
	{"evidence", 6_500, func(file string) bool { return strings.Contains(file, "evidence") }},
}

const (
	mostFields = 20 // of a struct
	mostLines  = 60 // of a function
	mostOld    = 5  // per cent of a package's comments
)

// old finds constructions that read like a translation: "what is", "those that", "is told",
// "of which". One in a page is nothing; where they are many, nobody read the text aloud.
var old = regexp.MustCompile(`(?i)\b(is|are|was|were) (taken|told|known|kept|meant|given|said|asked|seen|made|found|shown|left)\b|\bof which\b|\bwhose\b|\bwhat (is|became|was|it|they|he|she|nobody|somebody|was)\b|\bthose (that|of|who)\b|\bby which\b|\bby that\b`)

// measures are what is over a bound, by what it is and where, such as "lines service".
func measures(files map[string]string) (over, all map[string]int, err error) {
	over, all = map[string]int{}, map[string]int{}
	put := func(what string, n, bound int) {
		all[what] = n
		if n > bound {
			over[what] = n
		}
	}
	lines, comments, foreign := map[string]int{}, map[string]int{}, map[string]int{}
	for name, text := range files {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") || generated.MatchString(text) {
			continue
		}
		for _, r := range rooms {
			if r.in(name) {
				lines[r.name] += strings.Count(text, "\n")
			}
		}
		f, err := parse(name, text)
		if err != nil {
			return nil, nil, err
		}
		dir := "."
		if i := strings.LastIndexByte(name, '/'); i >= 0 {
			dir = name[:i]
		}
		for _, c := range commentsOf(text) {
			comments[dir]++
			if old.MatchString(c) {
				foreign[dir]++
			}
		}
		f.sizes(dir, put)
	}
	for _, r := range rooms {
		put("lines "+r.name, lines[r.name], r.bound)
	}
	for dir, n := range comments {
		if n >= 20 {
			put("old "+dir, 100*foreign[dir]/n, mostOld)
		}
	}
	return over, all, nil
}

type parsed struct {
	*ast.File
	set *token.FileSet
}

func parse(name, text string) (parsed, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	return parsed{f, set}, err
}

// sizes puts the functions and structs that are over their bounds.
func (f parsed) sizes(dir string, put func(what string, n, bound int)) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiverName(d.Recv.List[0].Type) + "." + name
			}
			put("function "+dir+":"+name, f.set.Position(d.End()).Line-f.set.Position(d.Pos()).Line+1, mostLines)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				ts, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if st, ok := ts.Type.(*ast.StructType); ok {
					put("struct "+dir+":"+ts.Name.Name, fieldsOf(st), mostFields)
				}
			}
		}
	}
}

func fieldsOf(st *ast.StructType) (n int) {
	for _, f := range st.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}

// commentsOf returns the blocks of comment lines of a file.
func commentsOf(text string) (blocks []string) {
	var block []string
	end := func() {
		if len(block) > 0 {
			blocks = append(blocks, strings.Join(block, " "))
			block = nil
		}
	}
	for line := range strings.Lines(text) {
		if c, ok := strings.CutPrefix(strings.TrimSpace(line), "//"); ok {
			block = append(block, strings.TrimSpace(c))
		} else {
			end()
		}
	}
	end()
	return blocks
}

// ceilings reads the list of what is over a bound.
func ceilings(text string) (map[string]int, error) {
	list := map[string]int{}
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		if s.Text() == "" || strings.HasPrefix(s.Text(), "#") {
			continue
		}
		n, what, _ := strings.Cut(s.Text(), " ")
		v, err := strconv.Atoi(n)
		if err != nil || list[what] != 0 {
			return nil, fmt.Errorf("%s: %q", ceilingList, s.Text())
		}
		list[what] = v
	}
	return list, nil
}

// ceilingFaults compares what is over a bound with what may be.
func ceilingFaults(over, may map[string]int) (faults []string) {
	for _, what := range slices.Sorted(maps.Keys(over)) {
		limit := "only within its bound"
		if may[what] > 0 {
			limit = strconv.Itoa(may[what])
		}
		if n := over[what]; n > may[what] {
			faults = append(faults, fmt.Sprintf("%s: %d, and may be %s", what, n, limit))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(may)) {
		if n, still := over[what]; !still {
			faults = append(faults, fmt.Sprintf("%s is within its bound: take its line out of %s", what, ceilingList))
		} else if kind, _, _ := strings.Cut(what, " "); n < may[what]-slack[kind] {
			faults = append(faults, fmt.Sprintf("%s has fallen to %d: lower it in %s (-lower does)", what, n, ceilingList))
		}
	}
	return faults
}

// slack is how far a number may be below its ceiling before the ceiling has to follow.
var slack = map[string]int{"lines": 100, "old": 2, "function": 3}

var lower = flag.Bool("lower", false, "lower the numbers of "+ceilingList+" to what is there, and take out what is within its bound")

// TestBounds holds the sizes that a reader has to face, and the way that comments are
// written. What was over a bound when the bound came is listed with its number, which may
// only fall:
//
//	go test ./internal/archtest -run TestBounds -lower
func TestBounds(t *testing.T) {
	over, all, err := measures(treeFiles(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rooms {
		t.Logf("%-20s %6d lines, bound %d", r.name, all["lines "+r.name], r.bound)
	}
	text, err := os.ReadFile(ceilingList)
	if err != nil {
		t.Fatal(err)
	}
	may, err := ceilings(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if *lower {
		may = lowered(over, may)
		if err := writeCeilings(string(text), may); err != nil {
			t.Fatal(err)
		}
	}
	report(t, ceilingFaults(over, may))
}

// lowered is the list without what is within its bound by now, and with lower numbers where
// they have fallen.
func lowered(over, may map[string]int) map[string]int {
	next := map[string]int{}
	for what, n := range may {
		if now, still := over[what]; still {
			next[what] = min(n, now)
		}
	}
	return next
}

// writeCeilings keeps the comment at the top of the list.
func writeCeilings(text string, may map[string]int) error {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(may)) {
		fmt.Fprintf(&b, "%d %s\n", may[what], what)
	}
	return os.WriteFile(ceilingList, []byte(b.String()), 0o644)
}

func TestBoundsFind(t *testing.T) {
	var long strings.Builder
	long.WriteString("package a\n\n// S is what is kept of those that are told.\ntype S struct{ A, B, C, D, E, F, G, H, I, J, K int; L, M, N, O, P, Q, R, T, U, V int }\n\n// F runs.\nfunc (s *S) F() {\n")
	for range 60 {
		long.WriteString("\t_ = 0\n")
	}
	long.WriteString("}\n")
	for range 20 {
		long.WriteString("\n// That by which it is known.\n")
	}
	over, _, err := measures(map[string]string{"store/pgstore/a.go": long.String(), "store/pgstore/a_test.go": long.String()})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"function store/pgstore:S.F": 62, "struct store/pgstore:S": 21, "old store/pgstore": 95}
	if !maps.Equal(over, want) {
		t.Errorf("over the bounds: %v, want %v", over, want)
	}
	wantFaults(t, ceilingFaults(want, map[string]int{"function store/pgstore:S.F": 62, "struct store/pgstore:S": 20, "old store/pgstore": 99, "lines x": 5}),
		"struct store/pgstore:S: 21, and may be 20", "lines x is within its bound", "old store/pgstore has fallen to 95")
}
