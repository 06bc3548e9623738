/* Keeps the library in Python's processes that are started without its variables, as servers and runners are. */
#include <stdio.h>
#include <string.h>

enum { CARRIED = 4 };
static char *carried[CARRIED];
static int (*next_execve)(const char *, char *const[], char *const[]);

__attribute__((constructor)) static void carry(void) {
    static const char *names[CARRIED] = {
        "LD_PRELOAD", "BROKEN_DISK_FOLDERS", "BROKEN_DISK_CONTROL", "CLOCK_CONTROL"};
    next_execve = dlsym(RTLD_NEXT, "execve");
    for (int i = 0; i < CARRIED; i++) {
        const char *value = getenv(names[i]);
        if (value && asprintf(&carried[i], "%s=%s", names[i], value) < 0) carried[i] = NULL;
    }
}

/* Python may call it in a child that shares its memory: nothing is allocated. */
int execve(const char *path, char *const words[], char *const variables[]) {
    const char *slash = strrchr(path, '/');
    int count = 0, is_python = strncmp(slash ? slash + 1 : path, "python", 6) == 0;
    for (; is_python && variables && variables[count]; count++)
        if (strncmp(variables[count], "LD_PRELOAD=", 11) == 0) is_python = 0;
    if (!is_python) return next_execve(path, words, variables);
    char *all[count + CARRIED + 1];
    for (int i = 0; i < count; i++) all[i] = variables[i];
    for (int i = 0; i < CARRIED; i++)
        if (carried[i]) all[count++] = carried[i];
    all[count] = NULL;
    return next_execve(path, words, all);
}
