static inline int floor_mod_i32(int a, int b) { int r = b == 0 || b == -1 ? 0 : a % b; return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
__attribute__((reqd_work_group_size(64, 1, 1)))
__kernel void fused(__global const int* restrict in0, __global const int* restrict in1, __global int* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part + team;
    for (int item = 0; item < 1; item++) {
        const int p = lane + item * 64;
        const int v0 = in0[q * 65 + p];
        const int v1 = in1[p];
        const bool v2 = v0 < v1;
        const int v3 = floor_mod_i32(v0, v1);
        const int v4 = v2 ? v0 : v3;
        out0[q * 65 + p] = v4;
    }
    {
        const int p = lane + 1;
        const int v0 = in0[q * 65 + p];
        const int v1 = in1[p];
        const bool v2 = v0 < v1;
        const int v3 = floor_mod_i32(v0, v1);
        const int v4 = v2 ? v0 : v3;
        out0[q * 65 + p] = v4;
    }
}
