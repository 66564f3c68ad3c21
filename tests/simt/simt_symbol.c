/* Names of functions, also static ones, from the symbol table of the program's file; dladdr knows only
 * exported names. Only findings look them up. */
#include "tests/simt/simt_machine.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_BYTES = 512 };

/* Of the C++ runtime (Itanium C++ ABI, 3.4); weak, as a program of C alone has none. */
char *__cxa_demangle(const char *name, char *buffer, size_t *bytes, int *status) __attribute__((weak));

static int first_base(struct dl_phdr_info *info, size_t bytes, void *base)
{
	(void)bytes;
	*(ElfW(Addr) *)base = info->dlpi_addr;
	return 1; /* the program itself comes first */
}

static void put_name(char *text, const char *mangled, size_t offset)
{
	int status = -1;
	char *plain = __cxa_demangle ? __cxa_demangle(mangled, NULL, NULL, &status) : NULL;
	int len = snprintf(text, NAME_BYTES, "%s", status ? mangled : plain);

	if (len > 160) /* the arguments of a template fill lines */
		len = snprintf(text, NAME_BYTES, "%.160s...", status ? mangled : plain);
	if (offset)
		snprintf(text + len, NAME_BYTES - (size_t)len, "+0x%zx", offset);
	free(plain);
}

/* 1 where the file has a function that covers the address. */
static int find_in(const char *file, size_t bytes, ElfW(Addr) address, char *text)
{
	const ElfW(Ehdr) *head = (const void *)file;
	const ElfW(Shdr) *sections = (const void *)(file + head->e_shoff);

	if (bytes < sizeof(*head) || memcmp(head->e_ident, ELFMAG, SELFMAG) ||
	        head->e_shoff + (size_t)head->e_shnum * sizeof(*sections) > bytes)
		return 0;
	for (int i = 0; i < head->e_shnum; i++) {
		const ElfW(Sym) *symbols = (const void *)(file + sections[i].sh_offset);
		const char *names;

		if (sections[i].sh_type != SHT_SYMTAB || sections[i].sh_link >= head->e_shnum)
			continue;
		names = file + sections[sections[i].sh_link].sh_offset;
		for (size_t n = 0; n < sections[i].sh_size / sizeof(*symbols); n++) {
			const ElfW(Sym) *s = &symbols[n];

			if ((s->st_info & 15) == STT_FUNC && address >= s->st_value &&
			        address - s->st_value < (s->st_size ? s->st_size : 1)) {
				put_name(text, names + s->st_name, address - s->st_value);
				return 1;
			}
		}
	}
	return 0;
}

size_t symbol_offset(const void *address)
{
	ElfW(Addr) base = 0;

	dl_iterate_phdr(first_base, &base);
	return (ElfW(Addr))(uintptr_t)address - base;
}

const char *symbol_name(const void *address)
{
	static char text[NAME_BYTES];
	struct stat status;
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), found = 0;
	void *map = MAP_FAILED;

	if (file >= 0 && !fstat(file, &status))
		map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
	if (map != MAP_FAILED) {
		found = find_in(map, (size_t)status.st_size, symbol_offset(address), text);
		munmap(map, (size_t)status.st_size);
	}
	if (file >= 0)
		close(file);
	if (!found)
		snprintf(text, sizeof(text), "%p", address);
	return text;
}
