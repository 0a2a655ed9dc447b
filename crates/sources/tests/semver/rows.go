// Prints versions, and then for each operator with each form of a version which of them are in that range.
package main

import (
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"
)

var versions = strings.Fields("0.0.0 0.0.1 0.0.9 0.1.0 0.2.3 0.9.0 1.0.0 1.0.1 1.2.0 1.2.3 1.2.4 1.3.0 2.0.0 3.1.4 " +
	"0.0.0-0 0.0.1-rc.1 0.1.0-0 1.0.0-rc.1 1.2.3-0 1.2.3-rc.1 1.2.3-rc.2 1.3.0-0 2.0.0-rc.1 1.2.3+b")

var operators = strings.Split(", =, !=, >, <, >=, =>, <=, =<, ~, ~>, ^", ", ")

var forms = strings.Fields("* x X 0 1 0.0 0.1 1.2 0.x 0.0.x 1.x 1.2.x 1.x.3 *.1 x.1.2 0.0.0 0.0.1 0.2.3 1.2.3 v1.2 " +
	"*-0 0-0 1-0 1.x-0 0.0-0 1.2-0 1.2.x-0 0.0.0-0 1.2.3-0 1.2.3-rc.1 *+b 1.2+b 1.2.3+b")

var ranges = []string{"* - 2", "1 - *", "0 - 1", "0 - 0", "1.2 - 1.2", "x - x", "1-0 - 2", "1 - 2-0", "<=* || 3", "<=* >0.0.0", "!=*, *", "*, >=1.2.3-rc.2"}

func main() {
	fmt.Println(strings.Join(versions, " "))
	all := ranges
	for _, operator := range operators {
		for _, form := range forms {
			all = append(all, operator+form)
		}
	}
	for _, text := range all {
		constraint, err := semver.NewConstraint(text)
		row := "-"
		if err == nil {
			row = ""
			for _, version := range versions {
				in := "0"
				if constraint.Check(semver.MustParse(version)) {
					in = "1"
				}
				row += in
			}
		}
		fmt.Printf("%s %s\n", row, text)
	}
}
