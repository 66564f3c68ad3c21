# What nvcc made of the kernels, as PTX, before a driver or ptxas goes on with it: the bits that docs/numerics.md
# promises need every sum, product, quotient and root rounded once (an instruction that says .rn is never fused or
# approximated by what comes after; AdamW's kernels refine approximations until they are exact), and subnormals
# kept; a launch is refused where a block has more registers than there are, which __launch_bounds__ (.maxntid)
# rules out. Prints each line that is otherwise, and fails.
function complain(what) {
	printf "%s:%d: %s: %s\n", FILENAME, FNR, what, $0
	bad = 1
}

FNR == 1 {
	files++
	entry = ""
}
/\.entry / {
	entry = $0
	entries++
}
/\.maxntid/ { entry = "" }
/^{/ && entry {
	complain("a kernel without __launch_bounds__, " entry)
	entry = ""
}
/[ \t](add|sub|mul|mad|fma)\.(ftz\.|sat\.)*f(32|64)[ \t]/ { complain("may be fused") }
/[ \t](div|sqrt)\.(approx|full)/ { complain("not rounded") }
/\.ftz/ && !/[ \t](ex2|rcp|rsqrt)\.approx\.ftz\.f(32|64)[ \t]/ { complain("flushes subnormals") }
/\.approx/ && FILENAME ~ /adamw|sumsq|cuda_(add|cast|copy)/ && !(FILENAME ~ /adamw/ && /[ \t](rcp|rsqrt)\./) { complain("of bits that are the host's") }
END {
	if (!files || !entries) {
		print "cuda_ptx.awk: no kernels"
		bad = 1
	}
	exit bad
}
