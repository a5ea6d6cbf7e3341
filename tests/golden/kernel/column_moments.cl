__attribute__((reqd_work_group_size(64, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global float* restrict out0, __global float* restrict out1) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part / 2;
    const int begin = part % 2 * 64;
    const int p = (begin < 32 ? begin : 32) + lane;
    float a0 = 0.0f;
    float a1 = 0.0f;
    for (int r = 0; r < 200; r++) {
        const float v0 = in0[r * 96 + p];
        const float v2 = v0 * v0;
        a0 = v0 + a0;
        a1 = v2 + a1;
    }
    const float v1 = a0;
    const float v3 = a1;
    out0[p] = v1;
    out1[p] = v3;
}
