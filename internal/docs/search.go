package docs

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode"
)

// An Index finds sections of pages by words. It has whole numbers only, so that a script in a
// browser ranks by it exactly as [Index.Search] does.
type Index struct {
	// Stop are words that say nothing, unless there is no other.
	Stop     []string  `json:"stop"`
	Sections []Section `json:"sections"`
	// Terms has for each stem the sections it is in: number and weight, in turn.
	Terms map[string][]int `json:"terms"`
}

// A Section is a heading with the text below it, as a hit shows it.
type Section struct {
	Page    int    `json:"page"` // which; a page is a hit once
	URL     string `json:"url"`
	Title   string `json:"title"` // of the page
	Heading string `json:"heading,omitempty"`
	Excerpt string `json:"excerpt"`
}

// name is the title, with the heading of the section if it isn't the first.
func (s Section) name() string {
	if s.Heading == "" {
		return s.Title
	}
	return s.Title + ": " + s.Heading
}

// Most is how many hits make a page of them.
const Most = 10

var stopWords = strings.Fields("a an and are be by can did do does for from has have how i if in is it my not of on or that the this to was what when where which who why will with you your")

// stemsOf splits a text into words, and cuts their endings, so that charge finds charged.
func stemsOf(text string) (stems []string) {
	for _, word := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }) {
		stems = append(stems, stem(word))
	}
	return stems
}

func stem(w string) string {
	cut := func(ending, instead string, least int) bool {
		if len(w) < least+len(ending) || !strings.HasSuffix(w, ending) {
			return false
		}
		w = strings.TrimSuffix(w, ending) + instead
		return true
	}
	if !cut("ies", "y", 2) && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") {
		cut("s", "", 3)
	}
	_ = cut("ied", "y", 2) || cut("ing", "", 3) || cut("ed", "", 3)
	cut("e", "", 3)
	return w
}

// What a word counts for by where it stands.
const (
	inTitle   = 12
	inHeading = 8
	inText    = 1
	mostTimes = 4 // it counts in one text
)

// newIndex reads all sections of all pages.
func (b *Book) newIndex() *Index {
	x := &Index{Stop: stopWords, Terms: map[string][]int{}}
	var counts []map[string]float64
	in := map[string]float64{} // how many sections have the word
	for n, p := range b.Pages {
		if n == 0 {
			continue // it has a line about each of the others
		}
		for i, s := range sectionsOf(p) {
			count := map[string]float64{}
			add := func(text string, worth, most float64) {
				times := map[string]float64{}
				for _, w := range stemsOf(text) {
					if times[w]++; times[w] <= most {
						count[w] += worth
					}
				}
			}
			add(s.text, inText, mostTimes)
			if add(s.heading, inHeading, 1); i == 0 {
				add(p.Title+" "+strings.ReplaceAll(p.Name, "-", " ")+" "+p.About, inTitle, 1)
			}
			worth := 1 / math.Sqrt(1+float64(len(s.text))/2000)
			if p.Kind == "" {
				worth /= 3 // an index has to be left for it
			}
			for w := range count {
				count[w] *= worth
				in[w]++
			}
			counts = append(counts, count)
			hit := Section{Page: n, URL: p.url(), Title: p.Title, Heading: s.heading, Excerpt: excerpt(s.text)}
			if i == 0 {
				hit.Heading, hit.Excerpt = "", cmp.Or(p.About, hit.Excerpt)
			} else {
				hit.URL += "#" + s.anchor
			}
			x.Sections = append(x.Sections, hit)
		}
	}
	for i, count := range counts {
		for w, n := range count {
			x.Terms[w] = append(x.Terms[w], i, int(10*n*math.Log(1+float64(len(counts))/in[w]))+1)
		}
	}
	return x
}

const longestExcerpt = 180

func excerpt(text string) string {
	if len(text) <= longestExcerpt {
		return text
	}
	cut := strings.LastIndexByte(text[:longestExcerpt], ' ')
	return text[:max(cut, 0)] + " …"
}

// Search returns the best hits for words, one for each page. A last word that isn't complete
// finds what begins with it. web/search.js does the same.
func (x *Index) Search(query string) []Section {
	words := stemsOf(query)
	if said := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(x.Stop, w) }); len(said) > 0 {
		words = said
	}
	score, found := make([]int, len(x.Sections)), make([]int, len(x.Sections))
	for n, word := range words {
		best := map[int]int{}
		weigh := func(postings []int, of int) {
			for i := 0; i < len(postings); i += 2 {
				best[postings[i]] = max(best[postings[i]], postings[i+1]/of)
			}
		}
		weigh(x.Terms[word], 1)
		if n == len(words)-1 && len(word) > 2 {
			for term, postings := range x.Terms {
				if strings.HasPrefix(term, word) && term != word {
					weigh(postings, 4)
				}
			}
		}
		for section, weight := range best {
			score[section] += weight
			found[section]++
		}
	}
	return x.hits(score, found, len(words))
}

// hits ranks the sections. One with all the words is worth more than several with one each.
func (x *Index) hits(score, found []int, words int) (hits []Section) {
	var order []int
	for i := range score {
		if score[i] = score[i] * found[i] * found[i] / max(1, words*words); score[i] > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return score[j] - score[i] })
	seen := map[int]bool{}
	for _, i := range order {
		if page := x.Sections[i].Page; !seen[page] && len(hits) < Most {
			seen[page] = true
			hits = append(hits, x.Sections[i])
		}
	}
	return hits
}

// Search returns the best hits for words, one for each page.
func (b *Book) Search(query string) []Section { return b.index().Search(query) }

// JSON is the index for the script of a site.
func (x *Index) JSON() []byte {
	text, err := json.Marshal(x)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	return append(text, '\n')
}
