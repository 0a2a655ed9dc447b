// Makes the table that the test beside it reads: what Go's regexp says to patterns, one on each line. First come those that are
// named here, then random ones of few characters, the same each time.
//
// Run it as `go run table.go > table.txt`.
package main

import (
	"bufio"
	"fmt"
	"math/rand"
	"os"
	"regexp"
	"strings"
)

// What each pattern is matched against. The test has the same list.
var texts = []string{
	"", "a", "b", "aa", "ab", "ba", "aab", "abab", "A", "1", "a1", "-", "a-b", "\n", "a\nb", "a\n", "é", "aéa", "éa", "[", "]", "{", "^",
	"\\", "Q", "&", "~", " ", "_", "a b", "(", "*", "+", "?", ".", ",", "a{1", "a{01}", "a{,2}", "\x01", "S", "ſ", "K",
}

var named = []string{
	`a**`, `a++`, `a??`, `a?*`, `a*?`, `a+?`, `a*??`, `a*?*`, `a{2}{3}`, `a{2}?`, `a{2}??`, `a{2}*`, `a*{2}`, `(a*)*`, `(?:a*)*`, `^*`, `$+`, `\b*`,
	`**`, `*`, `(*)`, `a|*`, `(|a)*`, `()*`, `a{1001}`, `a{1000}`, `a{1,1001}`, `a{2,1}`, `a{01}`, `a{1,02}`, `a{,2}`, `a{1,`, `a{1`, `a{}`, `a{99999999999}`,
	`(a{10}){100}`, `(a{10}){101}`, `((a{10}){10}){10}`, `((a{10}){10}){11}`, `(a{1000}){1}`, `(a{1000}){1,}`, `(a{1000}){0,1}`, `(a{1000}){2}`,
	`(a{501}){2}`, `(a{500}){2}`, `(a{1000}){0}`, `((a{1000}){0}){5}`, `(a{0,1000}b|c){2}`, `(a|b{600}){2}`, `(a{2,}){501}`, `(a{0,}){1000}`, `(a{500}b{500}){2}`,
	`(a{500}b{501}){2}`, `(?:(?:a{31}){32}){2}`, `(?i:a{600}){2}`, `a{2}b{1000}`, `((a{600}))(b{2})`, `(a{34}){30}`, `(a{33}){30}`,
	`[a-z--]`, `[a--]`, `[--a]`, `[--]`, `[---]`, `[a-c-e]`, `[+--]`, `[*--b]`, `[a-]`, `[-a]`, `[^-a]`, `[a-\d]`, `[\d-z]`, `[\d--]`, `[b-a]`, `[]a]`, `[]`, `[^]`,
	`[^]a]`, `[[a]`, `[[:alpha:]]`, `[[:^alpha:]]`, `[[:nope:]]`, `[[:alpha:`, `[[:]`, `[[:a]:]`, `[:alpha:]`, `[a`, `[\`, `[a&&b]`, `[a~~b]`, `[\b]`, `[\A]`, `[\Q]`,
	`[\x41-\x43]`, `[\101-\103]`, `[\pL]`, `[^\pL]`, `[\P{L}a]`, `[a^]`, `[\^]`, `[\-a]`, `[ -~]`, `[!--]`,
	`\012`, `\0`, `\01`, `\1`, `\18`, `\11`, `\101`, `\1011`, `\8`, `\9`, `\7`, `\77`, `\08`, `\141+`, `[\0]`, `[\1]`, `[\12]`, `[\012]`, `\0012`, `\377`, `\777`, `\400`,
	`\B`, `\Ba`, `a\B`, `a\Ba`, `\Bb\B`, `^\B`, `\B$`, `\B*`, `\bé`, `\Bé`, `é\B`, `\B\b`, `(?i)\Bé`, `a\Bé`, `(\B|x)`, `[\B]`, `\B{2}`,
	`\C`, `\q`, `\Z`, `\z`, `\A`, `\_`, `\-`, `\<`, `\é`, `\u0041`, `\x4`, `\x41`, `\x{41}`, `\x{}`, `\x{110000}`, `\x{10FFFF}`, `\x{41`, `\xg1`, `\x{0000041}`,
	`\Qa*\E`, `\Qa*`, `\Qab\E*`, `a\Q\E*`, `a*\Q\E*`, `\Q\E*`, `\Q\\E`, `\E`, `\Qa\Qb\E`, `a**b[`, `\Q[`, `a*\Qb\E*`,
	`(?i)A`, `(?i)s`, `(?i)[k]`, `(?i)\W`, `(?i)[^\W]`, `(?i)[[:upper:]]`, `(?i)\x41`, `(?i)\101`, `(?s).`, `(?m)^b`, `(?m)a$`, `a$`, `(?U)a*?`, `(?U)a*`, `(?i-i)A`, `(?ii)A`, `(?-i)a`,
	`(?-)a`, `(?i-)a`, `(?--i)a`, `(?)a`, `(?:)`, `(?x)a`, `(?u)a`, `(?=a)`, `(?!a)`, `(?<=a)`, `(?<n>a)`, `(?P<n>a)`, `(?P<n>`, `(?P<>a)`, `(?P<n-m>a)`, `(?P=n)`, `(?P>n)`,
	`(?P`, `(?<`, `(?`, `(?i`, `(?P<é>a)`, `(?'n'a)`, `(?#a)`, `(`, `)`, `(a`, `a)`, `(?:a`, `((a)`, `a|`, `|`, `||a`, `(|)`, `(?i)|a`, `(?i)*`, `(?i`,
	`a(?i)b`, `(a(?i)b)b`, `(?i:a)b`, `(?i)(?-i:a)b`, `x*`, `\pN`, `\p{^L}`, `\P{^L}`, `\pX`, `\p{Nope}`, `\p`, `\p{L`, `\p{Greek}`, `\p{Latin}`, `\pL+`, `\p{Lu}`, `\p{`, `\d`, `\D`, `\w`, `\W`,
	`\s`, `\S`, `\v`, `\a`, `\f`, `\t`, `\r`, `\n`, `\h`, `\R`, `\X`, `\K`, `\G`, `}`, `]`, `{`, `{2}`, `^{2}`, `a}`, `a]`, `a{2}b{3}`, `-`, `&`, `~`, `#`, ` `, `a b`, `.`, `.*`, `^$`, `$^`, `(^)*a`,
}

var pieces = strings.Split(`a b é A 1 * + ? {2} {0} {1,} {40} {01} {,2} ( ) (?: (?i) (?s: | ^ $ . [ ] [^ - -- \- \d \W [:alpha:] \b \B \Q \E \1 \12 \141 \x62 \pL \z & ~ { } , \ [a- ] [a-b] (a) (?P<n>`, " ")

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	seen := map[string]bool{}
	write := func(pattern string) {
		if seen[pattern] {
			return
		}
		seen[pattern] = true
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			fmt.Fprintf(out, "%s\tinvalid\n", pattern)
			return
		}
		bits := make([]byte, len(texts))
		for i, text := range texts {
			bits[i] = '0'
			if compiled.MatchString(text) {
				bits[i] = '1'
			}
		}
		fmt.Fprintf(out, "%s\t%s\n", pattern, bits)
	}
	for _, pattern := range named {
		write(pattern)
	}
	random := rand.New(rand.NewSource(16))
	for len(seen) < 4000 {
		var pattern strings.Builder
		for n := 1 + random.Intn(7); n > 0; n-- {
			pattern.WriteString(pieces[random.Intn(len(pieces))])
		}
		write(pattern.String())
	}
}
